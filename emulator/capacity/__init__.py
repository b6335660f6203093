"""Simulated Spot capacity: the machines of each size, region and zone, and what follows from it."""

from emulator.capacity.spot_capacity import CapacityPool, SpotCapacity

__all__ = ["CapacityPool", "SpotCapacity"]
