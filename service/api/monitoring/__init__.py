"""Routes of operators: audit, fleet, health, metrics, the state of the system."""
