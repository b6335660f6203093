"""The market: SKUs, quotas, prices, costs, placement scores, Resource Graph."""
