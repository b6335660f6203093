"""Reconcile jobs: prepare, admit, launch, settle, and publish what they made."""
