"""Sources and sinks that satisfy the Protocols and touch nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from anabranch.model import StagedFile
from anabranch.query import FlowGraph, Stream

READINGS: dict[str, pl.DataType] = {
    "sensor": pl.Int64(),
    "region": pl.String(),
    "ts": pl.Datetime("ms"),
    "volts": pl.Float64(),
}


@dataclass(frozen=True)
class FakeSource:
    label: str = "files readings/ (json)"
    schema: Mapping[str, pl.DataType] = field(default_factory=lambda: dict(READINGS))

    def check(self) -> None:
        """Nothing can be wrong."""


@dataclass(frozen=True)
class FakeSink:
    label: str = "parquet alerts/"
    suffix: str = ".parquet"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Everything fits."""

    def encode(self, frame: pl.DataFrame) -> bytes:
        return b""

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Nobody looks."""

    def retract(self, after_batch: int) -> None:
        """Nothing was published."""


def read_readings(flow: FlowGraph | None = None) -> Stream:
    """Return a stream of voltage readings."""
    return (flow or FlowGraph("readings")).read(FakeSource())


def timed_readings(flow: FlowGraph | None = None) -> Stream:
    """Return readings with event time, keyed by sensor."""
    return read_readings(flow).key_by("sensor").watermark("ts", "2s")
