"""Parts of the training loop around DeepSpeed's engine."""
