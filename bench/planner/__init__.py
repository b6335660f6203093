"""Benchmark of the planner: predicted step time, memory and goodput against published runs."""
