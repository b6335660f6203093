"""The local stack: install it, run it, break it, and run the demo on it."""
