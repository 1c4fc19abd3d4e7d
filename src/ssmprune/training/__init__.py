"""Training and evaluating our own models.

`train` has the loop, resumable to the bit; `recipes` the paper's hyperparameters and what fits a CPU; `gradual_pruning`
removes states while training. `state` is a training on disk, `distributed` several processes as one. `evaluate` counts
right answers; `calibration_inputs` gives inputs without labels.
"""
