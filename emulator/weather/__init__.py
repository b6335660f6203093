"""Capacity as weather: what there is of each size in each place, and what follows from it."""

from emulator.weather.weather import Pool, Weather

__all__ = ["Pool", "Weather"]
