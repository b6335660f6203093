"""What all operations share: a cache, a thread for long checks, liveness, the release."""
