"""Sources and sinks.

A source of your own is any object that fits ``anabranch.model.Source``: ``planner()`` returns an object that names the
next *splits* as plain JSON data (and where the source stands after them), and ``read(split)`` turns a split into Polars
frames, always the same rows in the same order. A sink of your own fits ``anabranch.model.Sink``: ``encode`` turns a
task's results into bytes, ``publish`` makes a committed batch visible and may be called again for the same batch. One
whose place must not be shared fits ``ExclusiveSink``, too.
"""

from anabranch.connectors.console_sink import console
from anabranch.connectors.databases import mariadb, postgres, redis_hashes
from anabranch.connectors.filesystem.delta import delta
from anabranch.connectors.filesystem.sinks import json_lines, parquet
from anabranch.connectors.filesystem.source import files
from anabranch.connectors.foreach_sink import foreach
from anabranch.connectors.generator.key_patterns import moving_normal, uniform, zipf
from anabranch.connectors.generator.streams import GeneratedValues, generate
from anabranch.connectors.global_stores import global_store, read_global_store
from anabranch.connectors.in_memory import memory, to_memory
from anabranch.connectors.kafka_topics import kafka
from anabranch.connectors.kafka_topics.sink import kafka_topic
from anabranch.connectors.lookups import frame_table, parquet_table, redis_table, sql_table
from anabranch.connectors.sink_ownership import ExclusiveSink, ResultsLost

__all__ = [
    "ExclusiveSink",
    "GeneratedValues",
    "ResultsLost",
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
]
