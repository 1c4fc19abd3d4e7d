"""What sweeps have found, for people.

`query` asks the results, `curves` has what is drawn of them, `significance` says how sure a figure is. `tables` are the
paper's tables with its own numbers (`paper`) beside ours, `averages` those over tasks, `claims` what the paper says and
whether it holds here; `table_formats` writes them. `figures` draws; `page` is everything on one page to explore.
`reproduce` does the paper's experiments, `demo` shows the checkpoint that ships with the package.
"""
