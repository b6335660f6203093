"""Figures of the whole service for Prometheus and operators, and the pruning of old events."""
