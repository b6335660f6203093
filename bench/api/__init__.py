"""Benchmark of the CPU time of one API request, compared with a bare FastAPI app."""
