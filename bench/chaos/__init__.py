"""Chaos benchmark: kills replicas of the service at random and checks its promises."""
