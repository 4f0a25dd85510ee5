"""Aggregates in windows: by the flow's time or by each key's own."""
