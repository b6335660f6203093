"""Benchmark of elastic training: recovery and goodput of an elastic and a rigid job."""
