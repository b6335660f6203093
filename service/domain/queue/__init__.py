"""Admit queued jobs by quota, fair share and priority, and forecast when."""
