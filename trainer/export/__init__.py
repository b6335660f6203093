"""The final model as a Hugging Face folder, with its report and model card."""
