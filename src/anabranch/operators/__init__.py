"""Stateful operators as kernels on Polars frames, and the aggregates they compute."""

from anabranch.operators.kernels import make_kernel

__all__ = ["make_kernel"]
