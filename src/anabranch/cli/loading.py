"""Flows by their name on the command line, with every source and sink that a flow file may use."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.reporting import print_note

if TYPE_CHECKING:
    from anabranch.query.files.building import Constructors
    from anabranch.query.files.reading import FlowFile
    from anabranch.spark.flow import Flow

FLOW_HELP = "A flow: flow.yaml, flow.xml, flow.py, flow.py:attribute or module:attribute."


def load(reference: str) -> FlowFile[Flow]:
    """Return the flow that the reference names, with what its file says about running it."""
    from anabranch.model.renamed import RenamedWarning
    from anabranch.query.files.reading import load_flow
    from anabranch.spark.flow import Flow

    # `module:attribute` is looked for where the user stands, as `python -m` does.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default", RenamedWarning)
        loaded = load_flow(reference, flow_class=Flow, constructors=constructors())
    for warning in told:
        if issubclass(warning.category, RenamedWarning):
            print_note(f"{reference}: {warning.message}")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return loaded


def name_checkpoint(flow_name: str) -> str:
    """Return where a flow's checkpoint lies when nobody names one: in the folder in which the command is given."""
    return f"state/{flow_name}"


def constructors() -> Constructors:
    """Return the sources, sinks and values that flow files may name."""
    import polars

    from anabranch import connectors
    from anabranch.connectors.partitioner import Partitioner
    from anabranch.query.files.building import Constructors

    return Constructors(
        sources={"files": connectors.files, "generate": connectors.generate, "kafka": connectors.kafka},
        sinks={
            "parquet": connectors.parquet,
            "json_lines": connectors.json_lines,
            "console": connectors.console,
            "foreach": connectors.foreach,
            "global_store": connectors.global_store,
            "postgres": connectors.postgres,
            "mariadb": connectors.mariadb,
            "redis_hashes": connectors.redis_hashes,
            "delta": connectors.delta,
            "kafka_topic": connectors.kafka_topic,
        },
        tables={
            "redis_table": connectors.redis_table,
            "sql_table": connectors.sql_table,
            "parquet_table": connectors.parquet_table,
        },
        values={
            "uniform": connectors.uniform,
            "zipf": connectors.zipf,
            "moving_normal": connectors.moving_normal,
            "normal": connectors.GeneratedValues,
            "partitioner": Partitioner,
            "sql": polars.sql_expr,
        },
    )
