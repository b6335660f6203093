"""What Azure refuses in a scale set, in its codes and words."""
