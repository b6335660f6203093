"""Benchmark of checkpoints: the same state, saved and loaded by Rekindle and by rivals."""
