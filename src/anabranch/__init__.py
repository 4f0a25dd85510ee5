"""Keyed, stateful streaming on Apache Spark.

A flow reads from a source, transforms, keys, aggregates and writes; ``Flow.run`` runs it. Meant to be imported as
``import anabranch as ab``: ``ab.sum``, ``ab.min`` and ``ab.max`` would hide the builtins.
"""

from __future__ import annotations

from anabranch.connectors import (
    GeneratedValues,
    console,
    files,
    foreach,
    generate,
    json_lines,
    memory,
    moving_normal,
    parquet,
    to_memory,
    uniform,
    zipf,
)
from anabranch.errors import (
    AnabranchError,
    CheckpointError,
    EngineError,
    Fenced,
    FlowError,
    SinkError,
    SourceError,
    StateDamaged,
)
from anabranch.model import Aggregate, BatchProgress
from anabranch.operators.aggregates import count, first, last, max, mean, min, stddev, sum, variance
from anabranch.operators.sketches import approx_distinct, median, quantile, quantiles
from anabranch.query import Stream
from anabranch.spark.dataframes import from_spark
from anabranch.spark.flow import Flow, Handle
from anabranch.spark.session import local_session

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AnabranchError",
    "BatchProgress",
    "CheckpointError",
    "EngineError",
    "Fenced",
    "Flow",
    "FlowError",
    "GeneratedValues",
    "Handle",
    "SinkError",
    "SourceError",
    "StateDamaged",
    "Stream",
    "approx_distinct",
    "console",
    "count",
    "files",
    "first",
    "foreach",
    "from_spark",
    "generate",
    "json_lines",
    "last",
    "local_session",
    "max",
    "mean",
    "median",
    "memory",
    "min",
    "moving_normal",
    "parquet",
    "quantile",
    "quantiles",
    "stddev",
    "sum",
    "to_memory",
    "uniform",
    "variance",
    "zipf",
]
