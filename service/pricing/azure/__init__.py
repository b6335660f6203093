"""Prices, bills and capacity from Azure's APIs."""
