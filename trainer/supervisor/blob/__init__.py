"""Azure Blob Storage: requests, transfers, errors and retries."""
