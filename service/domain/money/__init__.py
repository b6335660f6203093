"""Meter, reserve, bound and reconcile what machines and storage cost.

Amounts are Decimal US dollars; nothing is rounded before `cost.cents`.
"""
