"""Baselines that are not pruning."""
