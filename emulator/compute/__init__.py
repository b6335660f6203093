"""Scale sets and their instances as ARM resources."""
