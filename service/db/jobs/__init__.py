"""Rows of jobs: state, lists, events, plans, results, step metrics."""
