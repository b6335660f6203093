"""Routes of files: upload, list, preview, content."""
