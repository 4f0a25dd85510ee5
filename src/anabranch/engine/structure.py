"""What of a flow a checkpoint depends on, and how to say what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import CheckpointError
from anabranch.eventtime.durations import describe_duration
from anabranch.model import TIME, JoinSpec
from anabranch.operators.joins.sections import COPIED, NEAR
from anabranch.query.nodes import Node, Stateful
from anabranch.state.manifest import Manifest, plain_json

MAY_CHANGE = (
    "Stateless steps, sources, sinks and their order, triggers, admission and delays may change; "
    "a processor may get further fields that have a default; stateful operators (their names, keys, windows, "
    "aggregates, fields and bands of near keys), the number of buckets and the parallelism may not."
)


def describe_flow(program: FlowProgram, buckets: int, parallelism: str) -> dict[str, Any]:
    """Return the flow's structure as plain JSON data; expressions are not part of it."""
    nodes = program.plan.nodes
    operators = {}
    for node in nodes.values():
        if isinstance(node.operation, Stateful):
            schema: dict[str, pl.DataType] = dict(nodes[node.inputs[0]].schema)
            if node.operation.spec.time_column:
                schema[TIME] = pl.Datetime("us")
            operators[node.operation.name] = program.kernels[node.id].structure(schema)
            if program.plan.is_global(node.id):
                # What was merged into a store is there, and nowhere in the checkpoint.
                operators[node.operation.name]["exchange"] = "global"
    described = {"operators": operators, "buckets": buckets, "strategy": parallelism}
    return dict(plain_json(described))


def stores_near_rows_once(manifest: Manifest, node: Node) -> bool:
    """Say whether rows of a join of near keys are on one slot each, as versions before copies of them left it."""
    assert isinstance(node.operation, Stateful)
    spec = node.operation.spec
    if not isinstance(spec, JoinSpec) or not spec.near or spec.draws:
        return False
    return COPIED not in manifest.flow_structure["operators"].get(node.operation.name, {COPIED: None})


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
            differences += _compare_operators(name, before, after)
    differences += [
        f"{name} was {old.get(field)} and is {structure.get(field)}"
        # Checkpoints have the parallelism under its name of before.
        for field, name in (("buckets", "buckets"), ("strategy", "parallelism"))
        if old.get(field) != structure.get(field)
    ]
    if differences:
        msg = f"this checkpoint belongs to another flow: {'; '.join(differences)}. {MAY_CHANGE} Use a new checkpoint."
        raise CheckpointError(msg)


def _compare_operators(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    differences: list[str] = []
    for field in sorted(set(before) | set(after)):
        old, new = before.get(field), after.get(field)
        if old == new or (field == "fields" and before.get("kind") == "processor"):
            continue
        if field in (COPIED, NEAR) and old is None:
            # Its state is laid anew, or was laid by a version that did not say how.
            continue
        if field == "aggregates" and old and new:
            differences += _compare_aggregates(old, new)
        else:
            shown = "band of near keys" if field == NEAR else field.removesuffix("_us").replace("_", " ")
            differences.append(f"{shown} was {_say(field, old)} and is {_say(field, new)}")
    if before.get("kind") == after.get("kind") == "processor":
        differences += _compare_fields(before["fields"], after["fields"])
    return [f"operator {name!r}: {text}" for text in differences]


def _compare_aggregates(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    differences = [f"the aggregate {name!r} is gone" for name in sorted(set(before) - set(after))]
    differences += [f"the aggregate {name!r} is new" for name in sorted(set(after) - set(before))]
    for name in sorted(set(before) & set(after)):
        # What differs is refused, whether or not the words for it do.
        if before[name] != after[name]:
            old, new = _say_aggregate(before[name]), _say_aggregate(after[name])
            differences.append(f"the aggregate {name!r} was {old} and is {new}")
    return differences


def _say_aggregate(described: Mapping[str, Any]) -> str:
    columns = f" of {', '.join(described['columns'])}" if described["columns"] else ""
    return f"{described['kind']}{columns} (kept as {_say('partials', described['partials'])})"


def _say(field: str, value: Any) -> str:
    """Return a part of the structure in words: ``kind tumbling, size 10s``."""
    if value is None:
        return "none"
    if field.endswith("_us"):
        return describe_duration(value)
    if isinstance(value, Mapping):
        parts = [f"{part.removesuffix('_us')} {_say(part, held)}" for part, held in value.items() if held != 0]
        return ", ".join(parts) or "nothing"
    return str(value)


def _compare_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Say what keeps the stored rows of a processor from being read as its fields are declared now."""
    differences = [f"the field {field!r} is gone" for field in sorted(set(before) - set(after))]
    for field in sorted(after):
        old, new = before.get(field), after[field]
        if old is None:
            if not new["has_default"]:
                differences.append(f"the field {field!r} is new and says no default, such as default=None")
            continue
        differences += [
            f"the {part} of the field {field!r} was {old.get(part)} and is {new.get(part)}"
            for part in ("kind", "type", "default")
            if old.get(part) != new.get(part)
        ]
    return differences
