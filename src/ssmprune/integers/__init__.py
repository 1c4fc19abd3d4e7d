"""Models as the numbers that they compute with, for the engines that are no torch.

`numbers` reads a trained classifier: discretised in double precision, whole numbers where its weights are on a grid.
"""
