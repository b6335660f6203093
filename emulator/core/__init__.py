"""The state as frozen rows, its file, the agenda, the catalog, and Azure's errors."""
