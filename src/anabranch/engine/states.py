"""Read a flow's state as frames, and start a flow from state that is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.engine.batches.batch_routes import first_routes
from anabranch.engine.structure import stores_near_rows_once
from anabranch.engine.tasks.blocks import cut
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import CheckpointError, FlowError
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.eventtime.flow.operator_times import load_clocks
from anabranch.model import (
    EMISSION,
    HASH,
    WINDOW,
    DistinctSpec,
    JoinSpec,
    MeetingInTime,
    ProcessSpec,
    RunRef,
)
from anabranch.model.columns import SECTION
from anabranch.model.exchanges import HoldingKernel
from anabranch.operators.processors.processor import FrameProcessor, Processor
from anabranch.query.nodes import Node, Stateful
from anabranch.routing import hash_keys
from anabranch.routing.join_slots import drop_joined_copies, place_joined
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.routing.phases import PhasedRoutes, drop_copies, keys_of, window_of
from anabranch.routing.routes import Routes
from anabranch.state.inspect import find_level, list_holders
from anabranch.state.manifest import INITIAL_BATCH, LevelState, Manifest
from anabranch.state.runs import RunFiles, WriteName


def read_state(
    program: FlowProgram, manifest: Manifest, operator: str | None = None, *, raw: bool = False
) -> pl.DataFrame:
    """Return the state of an operator after a batch: keys, windows and the values so far.

    ``raw`` gives the rows as they are stored, which is what a flow can be started from.
    """
    node = _find_operator(program, operator)
    level = find_level(manifest, _name(node))
    files = RunFiles(program.store, "state", WriteName(0, manifest.batch, 0, "reader"))
    kernel = program.kernels[node.id]
    passed_us = _passed_us(program, manifest, node)
    phases = PhasedRoutes.from_json(level.routes)
    assert isinstance(node.operation, Stateful)
    window = window_of(node.operation.spec)
    spec = node.operation.spec

    has_no_copies = stores_near_rows_once(manifest, node)

    def read(ref: RunRef, slot: int) -> pl.DataFrame:
        rows = files.read(ref)
        if has_no_copies:
            return rows
        if isinstance(spec, JoinSpec):
            return drop_joined_copies(rows, phases, spec, slot)
        return drop_copies(rows, phases, window, slot)

    held = [kernel.stored([read(ref, slot) for ref in refs], passed_us) for slot, refs in list_holders(level)]
    # What tasks before it hold back was accepted as the rest was; windows that are over have nothing there.
    waiting = [files.read(ref) for buffer in manifest.reader_buffers.get(_name(node), ()) for ref in buffer.runs]
    if not held and not waiting:
        return empty_state(program, operator, raw=raw)
    stored = cast("HoldingKernel", kernel).with_held(held, waiting) if waiting else kernel.unite(held)
    clocks = load_clocks(program.plan, manifest)[node.id].split_keys
    if clocks is not None and isinstance(kernel.meeting, MeetingInTime):
        stored = kernel.meeting.settle(stored, clocks)
    shown = stored if raw else kernel.values(stored)
    return shown if shown.width else empty_state(program, operator)


def empty_state(program: FlowProgram, operator: str | None = None, *, raw: bool = False) -> pl.DataFrame:
    """Return what ``read_state`` returns of an operator that holds nothing; of what is stored, only keys are known."""
    node = _find_operator(program, operator)
    assert isinstance(node.operation, Stateful)
    spec = node.operation.spec
    given = program.plan.nodes[node.inputs[0]].schema
    keys = {key: given[key] for key in spec.keys}
    if raw:
        return pl.DataFrame(schema={**keys, HASH: pl.UInt64()})
    match spec:
        case DistinctSpec():
            return pl.DataFrame(schema={**keys, "seen": pl.Datetime("us")})
        case ProcessSpec():
            return pl.DataFrame(schema={**keys, **_fields_of(spec)})
        case JoinSpec():
            kept = {name: dtype for source in spec.inputs for name, dtype in source.schema.items()}
            # What waits says which input it is of, and has no time of results.
            return program.kernels[node.id].values(pl.DataFrame(schema={**kept, **keys, SECTION: pl.Int8()}))
    window = getattr(spec, "window", None)
    marks = window is not None and window.marks_emissions
    return pl.DataFrame(schema={name: dtype for name, dtype in node.schema.items() if not (marks and name == EMISSION)})


def _fields_of(spec: ProcessSpec) -> dict[str, pl.DataType]:
    declared = cast("Processor | FrameProcessor", spec.processor).state_fields
    counts = ("event_timers", "processing_timers", *(("waiting_rows",) if spec.ordered else ()))
    return {**{name: field.stored_type for name, field in declared.items()}, **dict.fromkeys(counts, pl.Int64())}


def write_initial_state(
    program: FlowProgram, given: Mapping[str, pl.DataFrame], buckets: int, epoch: int, job: str
) -> tuple[LevelState, ...]:
    """Write given state, as ``read_state(raw=True)`` returns it, as the runs that batch 0 starts from."""
    names = {_name(node): node for node in program.plan.stateful}
    strangers = [name for name in given if name not in names]
    if strangers:
        msg = f"initial state for unknown operators {', '.join(strangers)}; the flow has {', '.join(names)}"
        raise FlowError(msg)
    levels = []
    for name, node in names.items():
        rows = given.get(name, pl.DataFrame())
        routes = first_routes(program.plan, node.id, buckets, _sample(node, rows))
        levels.append(write_level(program, node, rows, routes, WriteName(epoch, INITIAL_BATCH, 0, job)))
    return tuple(levels)


def _sample(node: Node, rows: pl.DataFrame) -> KeySample | None:
    """Return the keys of given state, each as hot as it has rows there; None if it has none."""
    assert isinstance(node.operation, Stateful)
    keys = node.operation.spec.keys
    if not rows.height or not keys or any(key not in rows.columns for key in keys):
        return None
    batch = KeyBatch.of(rows.drop_nulls(list(keys)), keys)
    return KeySample.gather(batch.hashes, values=batch.values)


def write_level(
    program: FlowProgram,
    node: Node,
    rows: pl.DataFrame,
    routes: Routes,
    writer: WriteName,
    slots: NDArray[np.int32] | None = None,
) -> LevelState:
    """Write all state of an operator, one run a slot: where its routes put each row, or where ``slots`` says."""
    runs: list[tuple[RunRef, ...]] = [() for _ in range(routes.slots)]
    for slot, part in _parts(node, rows, routes, slots).items() if rows.height else ():
        runs[slot] = (RunFiles(program.store, f"state/{node.id}/{slot}", writer).write(part),)
    return LevelState(_name(node), PhasedRoutes(routes).to_json(), tuple(runs))


def _parts(node: Node, rows: pl.DataFrame, routes: Routes, slots: NDArray[np.int32] | None) -> dict[int, pl.DataFrame]:
    assert isinstance(node.operation, Stateful)
    keys = node.operation.spec.keys
    missing = [column for column in (*keys, HASH) if column not in rows.columns]
    if missing:
        msg = (
            f"initial state of {node.operation.name!r} has no column {', '.join(missing)}; it has "
            f"{', '.join(rows.columns)}; give what read_state(..., raw=True) returns"
        )
        raise FlowError(msg)
    if keys:
        # Only rows of joins may have a null as their key.
        rows = rows.with_columns(hash_keys(rows, keys).fill_null(0).alias(HASH))
    parts: dict[int, list[pl.DataFrame]] = {}
    if slots is None and isinstance(node.operation.spec, JoinSpec):
        rows, slots = place_joined(rows, routes, node.operation.spec)
    elif slots is None:
        slots = routes.storage_slots(keys_of(routes, rows, keys))
    for slot, part in cut(rows, slots, routes.slots):
        parts.setdefault(slot, []).append(part)
    order = [WINDOW, HASH, *keys] if WINDOW in rows.columns else [HASH, *keys]
    return {slot: pl.concat(found).sort(order, maintain_order=True) for slot, found in parts.items()}


def _find_operator(program: FlowProgram, operator: str | None) -> Node:
    nodes = program.plan.stateful
    if operator is None and len(nodes) == 1:
        return nodes[0]
    for node in nodes:
        if _name(node) == operator:
            return node
    names = ", ".join(_name(node) for node in nodes) or "none"
    msg = f"no operator {operator!r}; the flow has: {names}" if operator else f"name an operator: the flow has {names}"
    raise CheckpointError(msg)


def _name(node: Node) -> str:
    assert isinstance(node.operation, Stateful)
    return node.operation.name


def _passed_us(program: FlowProgram, manifest: Manifest, node: Node) -> int:
    time = load_time(program.plan, manifest)
    followed = program.plan.watermarks[node.id]
    return time.operator_time(manifest.batch, followed, lagging=True, draining=False, now_us=0).fired_us
