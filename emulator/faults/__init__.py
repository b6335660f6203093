"""Planted faults, and harm to one VM: cut network, slow disk, crash."""
