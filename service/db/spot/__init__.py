"""Rows about the Spot market: prices, capacity outages, observations of capacity."""
