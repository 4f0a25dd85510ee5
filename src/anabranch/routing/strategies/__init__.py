"""Strategies: from a sample of keys to routes, and how even each would make the slots."""
