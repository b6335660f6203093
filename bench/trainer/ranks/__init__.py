"""Programs of the trainer benchmark that import the measured code."""
