"""Azure Machine Learning: workspaces, clusters of (Spot) nodes, and the command jobs on them."""
