"""Benchmark of the web console: load size, speed in the browser, and API cost of open pages."""
