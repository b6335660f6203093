"""Estimate evictions and capacity of Spot machines from bands, prices and past attempts.

All rates are Gamma-Poisson estimates by age (`age_hazard.py`).
"""
