"""Rows of runs in experiment trackers and of registered models."""
