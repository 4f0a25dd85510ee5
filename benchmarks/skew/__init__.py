"""The skew bench: how even slots are under every strategy, and what balance costs and brings."""
