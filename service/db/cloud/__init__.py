"""Rows that replicas share about the cloud: scale sets, offerings, rate limits, alarms."""
