"""Stores in which readers' partial results meet, so that a flow needs no exchange (Global Merge)."""

from anabranch.connectors.global_stores.sink import GlobalStoreSink, global_store, read_global_store

__all__ = ["GlobalStoreSink", "global_store", "read_global_store"]
