"""`rekindle files`: upload, list, preview and delete training files."""
