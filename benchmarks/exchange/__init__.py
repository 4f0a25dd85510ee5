"""The exchange bench: the ways in which the rows of a key come together."""
