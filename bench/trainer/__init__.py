"""What a token costs to train, with us and with Hugging Face's Trainer over DeepSpeed."""
