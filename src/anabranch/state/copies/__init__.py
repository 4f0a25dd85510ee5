"""Copies of runs in a host's memory: its own, replicas of others, and when there are to be any."""
