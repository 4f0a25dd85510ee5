"""Figures of a run, with their units and their history."""

from anabranch.metrics.history import RunHistory, TimedBatch

__all__ = ["RunHistory", "TimedBatch"]
