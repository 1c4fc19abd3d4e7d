"""Calibration: measuring a torch model on unlabelled inputs, and re-fitting what pruning leaves of it.

`data` takes calibration data as people have it, `collect` measures the second moments of every layer in one pass,
`refit` re-fits a pruned model layer by layer. Below them, `record` runs a model and records what enters and leaves its
layers, `sums` adds up the second moments of states at one in s steps, `answers` puts a model's answers to labelled
batches beside the right ones and counts them. Torch is imported when a model arrives.
"""
