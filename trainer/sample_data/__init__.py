"""Text of the sample rows and of the tiny model."""
