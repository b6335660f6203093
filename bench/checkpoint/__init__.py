"""Saves and loads the same state by our path and by others, against what the wire can do."""
