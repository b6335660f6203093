"""Describe the machines of Azure as the service sees them, and limit how often it asks.

An `Offering` is a VM size in a region with a capacity type; a `ScaleSet` is what an attempt holds.
"""
