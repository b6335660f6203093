"""Rows of checkpoints and of stored bytes: tiers, retention, access policies."""
