"""What a generation reads: base model, data files, checkpoint."""
