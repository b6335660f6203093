"""Checks of a folder that is to become a base model; nothing is trained here."""
