"""Benchmark of hostile clients: their effect on the memory and latency of an api process."""
