"""Decide about stored bytes: access tiers, expiry of files and broken checkpoints."""
