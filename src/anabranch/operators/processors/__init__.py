"""Processors: users' own code, key by key, with state and timers."""
