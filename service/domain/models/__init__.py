"""Describe base models and the models that jobs make: shape, size, name and origin."""
