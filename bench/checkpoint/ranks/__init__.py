"""The processes that are measured. Only here does a benchmark import what it measures."""
