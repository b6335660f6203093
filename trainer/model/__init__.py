"""Base models: loading them, what is added to them, and the precision of their weights."""
