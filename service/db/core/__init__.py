"""Connections, transactions, leases and notifications, for all other packages of rows."""
