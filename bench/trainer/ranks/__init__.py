"""Processes that train: what is measured."""
