"""The `rekindle` command line."""
