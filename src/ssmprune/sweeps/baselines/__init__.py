"""What the pruning of states is compared with: `balanced` truncation, `h2_optimal` reduction, whose poles move,
`unstructured` pruning of single elements, and the scores of other codes `as_released`.
"""
