"""Commands about projects: their costs, API keys and capacity traces."""
