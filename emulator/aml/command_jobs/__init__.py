"""Command jobs of Azure ML: submission, runs, orders to nodes, history."""
