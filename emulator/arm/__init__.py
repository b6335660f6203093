"""What Azure Resource Manager does for every provider: checks, throttling, paging, operations."""
