"""The state of one key, as it is stored and as a person would read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.eventtime.operator_clocks import OperatorClocks
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import BEGINNING_OF_TIME, JoinKernel, MeetingInTime, RunRef
from anabranch.operators.recovery import recover_kernel, recover_window
from anabranch.routing.join_slots import drop_joined_copies
from anabranch.routing.phases import PhasedRoutes, drop_copies
from anabranch.spark.flow import Flow
from anabranch.state.inspect import find_key, list_holders, read_rows
from anabranch.state.manifest import LevelState, Manifest
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.store import Store

_READ_ONLY = WriteName(epoch=0, batch=0, attempt=0, unique="reader")


def read_stored(store: Store, level: LevelState, key: Mapping[str, str]) -> pl.DataFrame:
    """Return a key's rows as they are stored: it may have one in each run, until runs are merged."""
    return find_key(read_rows(store, level), key)


def read_values(store: Store, manifest: Manifest, level: LevelState, key: Mapping[str, str]) -> pl.DataFrame | None:
    """Return a key's values so far, or None if the checkpoint alone does not say how they are finished.

    Where a flow has several watermarks, the slowest of them counts for all: a session that a faster one has closed may
    still be among the values, as long as its row lies in a run.
    """
    structure = manifest.flow_structure["operators"][level.operator]
    kernel = recover_kernel(structure)
    if kernel is None:
        return None
    passed_us = min(FlowTime.from_json(manifest.watermarks).previous.values(), default=BEGINNING_OF_TIME)
    files = RunFiles(store, "state", _READ_ONLY)

    phases, window = PhasedRoutes.from_json(level.routes), recover_window(structure)

    def rows_of(slot: int, refs: Sequence[RunRef]) -> list[pl.DataFrame]:
        found = [find_key(files.read(ref), key) for ref in refs]
        if isinstance(kernel, JoinKernel):
            return [drop_joined_copies(rows, phases, kernel.spec, slot) for rows in found if rows.height]
        return [rows for some in found if (rows := drop_copies(some, phases, window, slot)).height]

    held = [kernel.stored(rows, passed_us) for slot, refs in list_holders(level) if (rows := rows_of(slot, refs))]
    if not held:
        return pl.DataFrame()
    stored = kernel.unite(held)
    clocks = OperatorClocks.from_json(manifest.engine.clocks.get(level.operator, {})).split_keys
    if clocks is not None and isinstance(kernel.meeting, MeetingInTime):
        stored = kernel.meeting.settle(stored, clocks)
    return kernel.values(stored)


def read_values_by_flow(flow: Flow, store: Store, batch: int, operator: str, key: Mapping[str, str]) -> pl.DataFrame:
    """Return a key's values so far, finished by the flow's own code."""
    return find_key(flow.read_state(store.url, operator, batch=batch), key)
