"""The service's side of the node protocol: register, heartbeat, grants, boot reports."""
