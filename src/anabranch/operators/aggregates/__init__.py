"""Aggregates: what they compute, over partial rows that merge in any order."""
