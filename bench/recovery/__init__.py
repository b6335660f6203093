"""Kills everything that can be killed, at every phase, and looks whether anything is lost."""
