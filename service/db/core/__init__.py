"""Connections, transactions, leases, notifications: what every other package of rows builds on."""
