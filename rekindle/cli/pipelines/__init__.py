"""`rekindle pipeline`: run several jobs in order."""
