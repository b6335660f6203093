"""What the node does: directives, the generation that runs, and how it is stopped."""
