"""Scale benchmark: cost and latency of the service with thousands of jobs and nodes."""
