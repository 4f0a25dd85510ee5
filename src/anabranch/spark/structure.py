"""What of a flow a checkpoint depends on, and how to say what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from anabranch.errors import CheckpointError
from anabranch.model import TIME
from anabranch.query.nodes import Stateful
from anabranch.spark.spec import FlowProgram
from anabranch.state.manifest import Manifest, plain_json

MAY_CHANGE = (
    "Stateless steps, sinks that are added at the end, triggers, admission and delays may change; "
    "stateful operators (their names, keys, windows and aggregates), the order of sources and sinks, "
    "the number of buckets and the strategy may not."
)


def describe_flow(program: FlowProgram, buckets: int, strategy: str) -> dict[str, Any]:
    """Return the flow's structure as plain JSON data; expressions are not part of it."""
    nodes = program.plan.nodes
    operators = {}
    for node in nodes.values():
        if isinstance(node.operation, Stateful):
            schema: dict[str, pl.DataType] = dict(nodes[node.inputs[0]].schema)
            if node.operation.spec.time_column:
                schema[TIME] = pl.Datetime("us")
            operators[node.operation.name] = program.kernels[node.id].structure(schema)
    described = {"operators": operators, "sources": len(program.sources), "buckets": buckets, "strategy": strategy}
    return dict(plain_json(described))


def refuse_changed_flow(manifest: Manifest, flow: str, structure: Mapping[str, Any]) -> None:
    """Raise ``CheckpointError`` that says what changed and what may change."""
    differences = []
    if manifest.flow != flow:
        differences.append(f"the flow was called {manifest.flow!r} and is called {flow!r}")
    old: Mapping[str, Any] = manifest.flow_structure
    for name in sorted(set(old["operators"]) | set(structure["operators"])):
        before, after = old["operators"].get(name), structure["operators"].get(name)
        if before is None:
            differences.append(f"operator {name!r} is new")
        elif after is None:
            differences.append(f"operator {name!r} is gone")
        else:
            differences += [
                f"operator {name!r}: {field} was {before.get(field)} and is {after.get(field)}"
                for field in sorted(set(before) | set(after))
                if before.get(field) != after.get(field)
            ]
    differences += [
        f"{field} was {old.get(field)} and is {structure.get(field)}"
        for field in ("sources", "buckets", "strategy")
        if old.get(field) != structure.get(field)
    ]
    if differences:
        msg = f"this checkpoint belongs to another flow: {'; '.join(differences)}. {MAY_CHANGE} Use a new checkpoint."
        raise CheckpointError(msg)
