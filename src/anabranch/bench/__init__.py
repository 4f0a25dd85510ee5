"""Workloads, peers, answer checks and reports: every claim about speed is made here, after equal answers."""

from __future__ import annotations

from anabranch.bench.registry import BENCHES, Bench, BenchError, BenchOptions

__all__ = ["BENCHES", "Bench", "BenchError", "BenchOptions"]
