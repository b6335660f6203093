"""Routes of plans: cost and duration beforehand, and simulations."""
