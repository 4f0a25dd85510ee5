"""Keyed, stateful streaming on Apache Spark.

A flow reads from a source, transforms, keys, aggregates and writes; ``Flow.run`` runs it. Meant to be imported as
``import anabranch as ab``: ``ab.sum``, ``ab.min`` and ``ab.max`` would hide the builtins.

Names are imported when they are first used: Polars, Arrow and PySpark take a second or two to import, which a command
that only prints its help, or a worker that needs a part of them, must not wait for.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch import testing as testing
    from anabranch.connectors import (
        GeneratedValues,
        console,
        delta,
        files,
        foreach,
        frame_table,
        generate,
        global_store,
        json_lines,
        kafka,
        kafka_topic,
        mariadb,
        memory,
        moving_normal,
        parquet,
        parquet_table,
        postgres,
        read_global_store,
        redis_hashes,
        redis_table,
        sql_table,
        to_memory,
        uniform,
        zipf,
    )
    from anabranch.connectors.partitioner import Partitioner, produce_frame
    from anabranch.engine.history import history
    from anabranch.errors import (
        AnabranchError,
        CheckpointError,
        ControlError,
        EngineError,
        Fenced,
        FlowError,
        SinkError,
        SourceError,
        StateDamaged,
    )
    from anabranch.eventtime.timers import Timer, Timers
    from anabranch.model import Aggregate, BatchProgress
    from anabranch.model.balance import Balance, BalanceTrigger, NamedStrategy
    from anabranch.model.elasticity import Elasticity
    from anabranch.model.energy import Energy
    from anabranch.model.replicas import Replicas
    from anabranch.operators.aggregates.functions import count, first, last, max, mean, min, stddev, sum, variance
    from anabranch.operators.aggregates.sketches import approx_distinct, median, quantile, quantiles
    from anabranch.operators.processors.declared_state import KeyState, listed, mapped, value
    from anabranch.operators.processors.processor import FrameProcessor, FrameTime, Processor, RowTime
    from anabranch.query import Stream
    from anabranch.query.merging import LocalMerge
    from anabranch.spark.dataframes import from_spark
    from anabranch.spark.flow import Flow
    from anabranch.spark.handles import Handle, active
    from anabranch.spark.session import local_session

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AnabranchError",
    "Balance",
    "BalanceTrigger",
    "BatchProgress",
    "CheckpointError",
    "ControlError",
    "Elasticity",
    "Energy",
    "EngineError",
    "Fenced",
    "Flow",
    "FlowError",
    "FrameProcessor",
    "FrameTime",
    "GeneratedValues",
    "Handle",
    "KeyState",
    "LocalMerge",
    "NamedStrategy",
    "Partitioner",
    "Processor",
    "Replicas",
    "RowTime",
    "SinkError",
    "SourceError",
    "StateDamaged",
    "Stream",
    "Timer",
    "Timers",
    "active",
    "approx_distinct",
    "console",
    "count",
    "delta",
    "files",
    "first",
    "foreach",
    "frame_table",
    "from_spark",
    "generate",
    "global_store",
    "history",
    "json_lines",
    "kafka",
    "kafka_topic",
    "last",
    "listed",
    "local_session",
    "mapped",
    "mariadb",
    "max",
    "mean",
    "median",
    "memory",
    "min",
    "moving_normal",
    "parquet",
    "parquet_table",
    "postgres",
    "produce_frame",
    "quantile",
    "quantiles",
    "read_global_store",
    "redis_hashes",
    "redis_table",
    "sql_table",
    "stddev",
    "sum",
    "to_memory",
    "uniform",
    "value",
    "variance",
    "zipf",
]

_NAMES_BY_MODULE = {
    "anabranch.connectors": (
        "GeneratedValues",
        "console",
        "delta",
        "files",
        "foreach",
        "frame_table",
        "generate",
        "global_store",
        "json_lines",
        "kafka",
        "kafka_topic",
        "mariadb",
        "memory",
        "moving_normal",
        "parquet",
        "parquet_table",
        "postgres",
        "read_global_store",
        "redis_hashes",
        "redis_table",
        "sql_table",
        "to_memory",
        "uniform",
        "zipf",
    ),
    "anabranch.connectors.partitioner": ("Partitioner", "produce_frame"),
    "anabranch.engine.history": ("history",),
    "anabranch.errors": (
        "AnabranchError",
        "CheckpointError",
        "ControlError",
        "EngineError",
        "Fenced",
        "FlowError",
        "SinkError",
        "SourceError",
        "StateDamaged",
    ),
    "anabranch.model": ("Aggregate", "BatchProgress"),
    "anabranch.model.balance": ("Balance", "BalanceTrigger", "NamedStrategy"),
    "anabranch.model.elasticity": ("Elasticity",),
    "anabranch.model.energy": ("Energy",),
    "anabranch.model.replicas": ("Replicas",),
    "anabranch.operators.aggregates.functions": (
        "count",
        "first",
        "last",
        "max",
        "mean",
        "min",
        "stddev",
        "sum",
        "variance",
    ),
    "anabranch.operators.processors.declared_state": ("KeyState", "listed", "mapped", "value"),
    "anabranch.operators.processors.processor": ("FrameProcessor", "FrameTime", "Processor", "RowTime"),
    "anabranch.operators.aggregates.sketches": ("approx_distinct", "median", "quantile", "quantiles"),
    "anabranch.eventtime.timers": ("Timer", "Timers"),
    "anabranch.query": ("Stream",),
    "anabranch.query.merging": ("LocalMerge",),
    "anabranch.spark.dataframes": ("from_spark",),
    "anabranch.spark.flow": ("Flow",),
    "anabranch.spark.handles": ("Handle", "active"),
    "anabranch.spark.session": ("local_session",),
}
_ROOMS_FOR_USERS = ("connectors", "errors", "model", "testing")
"""Rooms with names that flows may need, such as ``ab.model.Sink``, and what tests them, ``ab.testing``."""
_RENAMED = {"Trigger": "BalanceTrigger"}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __dir__() -> list[str]:
    # What this module imports for itself is nobody else's.
    return sorted({*__all__, *_ROOMS_FOR_USERS, *(name for name in globals() if name.startswith("__"))})


# Type checkers see the imports above, and say so if a name is none of them.
if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _ROOMS_FOR_USERS:
            return _import_module(f"{__name__}.{name}")
        if name in _RENAMED:
            from anabranch.model.renamed import tell_renamed

            tell_renamed(f"ab.{name}", f"ab.{_RENAMED[name]}")
            name = _RENAMED[name]
        module = _MODULE_OF.get(name)
        if module is None:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        found = globals()[name] = getattr(_import_module(module), name)
        return found
