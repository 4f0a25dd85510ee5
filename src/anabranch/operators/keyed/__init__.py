"""Operators that keep rows of state by key, and what they share: running, distinct, the best rows."""
