"""Rows of uploaded files, of uploads under way, and of checks of rows."""
