"""Capacity as weather: the machines of each size in each place, and what follows from it."""

from emulator.weather.weather import CapacityPool, CapacityWeather

__all__ = ["CapacityPool", "CapacityWeather"]
