"""What sweeps have found, for people.

`query` asks the results; `tables` are the paper's tables with its own numbers (`paper`) beside ours, which
`table_formats` writes; `figures` draws; `page` is everything on one page to explore. `reproduce` does the paper's
experiments, `demo` shows one checkpoint that ships along.
"""
