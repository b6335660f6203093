"""Simulate jobs under drawn or recorded Spot capacity with the production policy."""
