"""Decide purely: plain Python without I/O and without a clock, in packages by noun."""
