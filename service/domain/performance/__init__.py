"""Estimate memory and time of training on a VM size, without and with measurements.

Formulas, sources and errors: docs/planning.md.
"""
