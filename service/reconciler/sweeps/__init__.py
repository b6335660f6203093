"""Periodic work beside jobs and attempts: orphans, bills, prices, retention, copies."""
