"""Rows of attempts, their generations, their nodes, and heartbeats."""
