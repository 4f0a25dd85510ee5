"""Keyed, stateful streaming on Apache Spark."""

from __future__ import annotations

from anabranch.connectors import files, json_lines, memory, parquet, to_memory
from anabranch.operators.aggregates import count, first, last, max, mean, min, stddev, sum, variance
from anabranch.spark.dataframes import from_spark
from anabranch.spark.flow import Flow, Handle
from anabranch.spark.session import local_session

__version__ = "0.1.0"
