"""Simulated Spot capacity: the machines of each size in each place, and what follows from it."""

from emulator.capacity.spot_capacity import CapacityPool, SpotCapacity

__all__ = ["CapacityPool", "SpotCapacity"]
