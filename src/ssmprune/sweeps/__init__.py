"""Sweeps: every checkpoint pruned in every way at every ratio, and evaluated.

`sweep` has the whole, killed and resumed at will; `search` the largest ratio within a loss; `cells` what is done for
one cell; `runners` where it is done, here or on a Ray cluster; `store` the folder of results, `answers` which
examples were answered rightly. `approaches` are the ways of pruning that are compared, `baselines` those that do not
prune states.
"""

# Approaches that are no methods.
BEYOND_METHODS = (
    *("last-as-released", "aire-as-released", "surgeon-without-data"),
    *("unstructured-random", "balanced", "h2-optimal"),
)
