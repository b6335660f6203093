"""Benchmark of the placement policy: cost and lateness on recorded Spot capacity."""
