"""What pruning gains in speed and size.

`speed` measures the full, the masked and the shrunk model side by side; `subjects` are the models that can be measured;
`work` counts what a forward pass must compute; `timing` has the stopwatch, peak memory and the machine's name.
"""
