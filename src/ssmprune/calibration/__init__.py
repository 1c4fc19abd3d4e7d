"""Calibration: measuring a torch model on unlabelled inputs, and re-fitting what pruning leaves of it.

`batches` takes calibration data as people have it, `collect` measures the second moments of every layer in one pass,
`refit` re-fits a pruned model layer by layer. Below them, `recording` runs a model and records what enters and leaves
its layers, `passes` stops it at every layer, `strided` computes states at one in s steps. Torch is imported when a
model arrives.
`answers` puts a model's answers to labelled batches beside the right ones.
"""
