"""Calibration: measuring a torch model on unlabelled inputs, and re-fitting what pruning leaves of it.

`data` takes calibration data as people have it and works without torch. `record` runs a model, records what enters and
leaves its layers, and counts right answers; `collect` measures the second moments of every layer in one pass; `refit`
re-fits a pruned model layer by layer.
"""
