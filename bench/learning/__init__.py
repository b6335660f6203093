"""Benchmark of learning: whether each training method improves the tiny model."""
