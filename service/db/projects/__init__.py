"""Rows of projects, API keys and sign-in tokens."""
