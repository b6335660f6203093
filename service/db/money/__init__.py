"""Rows of money: the ledger of machines and storage, budgets, bills, prices in doubt."""
