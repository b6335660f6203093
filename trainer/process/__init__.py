"""Parts of one training process that know nothing of models: errors, collectives, limits."""
