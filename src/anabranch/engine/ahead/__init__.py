"""Ahead KeyBy: the source's partitions are the slots of the first level, so that its rows need no exchange."""
