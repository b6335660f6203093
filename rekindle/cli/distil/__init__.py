"""`rekindle distil`: build training rows from a teacher model's answers."""
