"""Saves on their way from the trainer to a committed checkpoint."""
