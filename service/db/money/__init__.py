"""Rows of money: ledgers of machines and storage, budgets, bills, doubted prices."""
