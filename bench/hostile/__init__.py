"""What strangers and keys can do to a running api process at worst."""
