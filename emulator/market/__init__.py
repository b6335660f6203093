"""What there is to buy and what it costs: SKUs, quotas, prices, scores, Resource Graph."""
