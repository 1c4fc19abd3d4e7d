"""Our own S5 and S4D classifiers in torch; they know nothing of pruning.

A `Classifier` is built from a `Config`, which states the number of states of every layer, so that a smaller model
is an ordinary model: `scan` runs the recurrences, `s5` and `s4d` are the layers, `block` puts one between a norm
and a gate, `classifier` stacks the blocks, `checkpoint` saves and loads.
"""
