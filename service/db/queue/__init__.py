"""Rows of the queue, of quotas and of limits of projects."""
