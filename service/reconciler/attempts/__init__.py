"""Reconcile attempts: observe, decide, take one step, record."""
