"""Calls to Azure: rate limits, circuit breaker, the shared list of scale sets."""
