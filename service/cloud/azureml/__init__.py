"""Azure ML clusters and jobs as scale sets; the model registry."""
