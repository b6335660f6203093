"""Principals, managed identities, sign-in and access tokens."""
