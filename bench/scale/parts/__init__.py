"""Processes of the scale benchmark: faces of the service, the world, and the nodes."""
