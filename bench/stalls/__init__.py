"""Benchmark of stalls: how long an expensive request delays the others."""
