"""Measured processes of the checkpoint benchmark; only these import the measured code."""
