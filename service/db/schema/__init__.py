"""Define every table; its constraints state the invariants."""
