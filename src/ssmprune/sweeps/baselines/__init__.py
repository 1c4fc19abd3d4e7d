"""What the pruning of states is compared with: `balanced` truncation, `unstructured` pruning of single elements."""
