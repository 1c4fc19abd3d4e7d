"""Models of 8 or 4 bits: `grid` holds weights as whole numbers with scales, `quantise` rounds weights to them.

`quantise` needs torch, `grid` does not.
"""
