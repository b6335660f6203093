"""What operators see: audit, fleet, faults that need a person, capacity traces."""
