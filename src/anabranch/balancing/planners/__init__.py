"""Planners: loads in, moves out."""
