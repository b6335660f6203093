"""Routes of models, and of the storage tiers that they and checkpoints lie in."""
