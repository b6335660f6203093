"""What the node tells the service: heartbeats, metrics, logs."""
