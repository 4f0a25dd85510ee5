"""Sources and sinks.

A source of your own is any object that fits ``anabranch.model.Source``: ``planner()`` returns an object that names the
next *splits* as plain JSON data (and where the source stands after them), and ``read(split)`` turns a split into Polars
frames, always the same rows in the same order. A sink of your own fits ``anabranch.model.Sink``: ``encode`` turns a
task's results into bytes, ``publish`` makes a committed batch visible and may be called again for the same batch. One
whose place must not be shared fits ``ExclusiveSink``, too.
"""

from anabranch.connectors.claims import ExclusiveSink
from anabranch.connectors.console import console
from anabranch.connectors.files import files
from anabranch.connectors.foreach import foreach
from anabranch.connectors.generator import GeneratedValues, generate
from anabranch.connectors.key_patterns import moving_normal, uniform, zipf
from anabranch.connectors.memory import memory, to_memory
from anabranch.connectors.sinks import json_lines, parquet

__all__ = [
    "ExclusiveSink",
    "GeneratedValues",
    "console",
    "files",
    "foreach",
    "generate",
    "json_lines",
    "memory",
    "moving_normal",
    "parquet",
    "to_memory",
    "uniform",
    "zipf",
]
