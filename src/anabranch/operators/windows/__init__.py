"""Aggregates in windows: their state lies by time where all keys share the flow's, else by key."""
