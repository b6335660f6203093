"""Programs of the learning benchmark that import the trainer."""
