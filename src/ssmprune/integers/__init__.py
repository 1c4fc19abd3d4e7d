"""Models in whole numbers, and the numbers of models for engines other than torch.

`numbers` reads a trained classifier: discretised in double precision, whole numbers where its weights are on a grid.
`calibrate` sees how large its activations become, `whole` chooses units by that and turns the model into whole numbers
alone, in which no state can overflow. `reference` defines in numpy what they compute; `source` fills the C of
`deploy/c/engine/integer.c`, which computes the same to the bit.
"""
