"""`rekindle up`, `evict` and `break`: commands about the local stack."""
