"""Lay an operator's state anew: its slots were by key and are by partition, or back, or an older version wrote it."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anabranch.connectors.partitioner import Partitioner
from anabranch.engine.ahead.level import find_partitioner
from anabranch.engine.batches.batch_routes import load_routes
from anabranch.engine.states import read_state, write_level
from anabranch.engine.structure import stores_near_rows_once
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import CheckpointError
from anabranch.query.nodes import Node, Stateful
from anabranch.routing.bases.partitions import PARTITIONS, PartitionRoute
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state.manifest import LevelState, Manifest
from anabranch.state.runs import WriteName

logger = logging.getLogger("anabranch")


def repartition_state(program: FlowProgram, before: Manifest, buckets: int, writer: WriteName) -> Manifest:
    """Return the manifest with every operator's state where the flow now wants it; mostly it is there already.

    The driver writes what must move, once: the files belong to the batch that comes, and count when that is committed.
    """
    nodes = {node.operation.name: node for node in program.plan.stateful if isinstance(node.operation, Stateful)}
    levels = []
    for level in before.levels:
        node = nodes.get(level.operator)
        if node is not None and stores_near_rows_once(before, node):
            levels.append(_rewrite(program, node, before, None, buckets, writer))
            logger.info("%s: state was laid anew, with copies of right rows for the slots of near keys", level.operator)
            continue
        was_ahead = level.routes["base"]["kind"] == PARTITIONS
        if node is None or was_ahead == (program.plan.exchanges[node.id].kind == "ahead"):
            levels.append(level)
            continue
        if not was_ahead and not any(level.refs()):
            levels.append(LevelState(level.operator, PhasedRoutes(Routes(PartitionRoute(1))).to_json(), ((),)))
            continue
        partitioner = find_partitioner(program.sources.values())
        _refuse(node, before, was_ahead, partitioner)
        levels.append(_rewrite(program, node, before, partitioner, buckets, writer))
        logger.info("%s: state was laid anew, by %s", level.operator, "key" if was_ahead else "partition")
    return replace(before, levels=tuple(levels))


def _refuse(node: Node, before: Manifest, was_ahead: bool, partitioner: Partitioner | None) -> None:
    assert isinstance(node.operation, Stateful)
    name = node.operation.name
    if not was_ahead and (partitioner is None or not partitioner.finds(node.operation.spec.keys)):
        msg = (
            f'{name} has its state by key, and exchange="ahead" has it by partition; only a partitioner that computes '
            "partitions from keys can tell where it goes: give it to the source (partitioned_by=), say the same "
            "exchange as before, or use a new checkpoint"
        )
        raise CheckpointError(msg)
    if before.reader_buffers.get(name):
        msg = f"{name}: readers hold merged rows back; run the flow with drain=True once before it changes its exchange"
        raise CheckpointError(msg)
    if node.operation.spec.clock.per == "slot":
        msg = f"{name} keeps time per slot, and its slots would be others; use a new checkpoint to change its exchange"
        raise CheckpointError(msg)


def _rewrite(
    program: FlowProgram,
    node: Node,
    before: Manifest,
    partitioner: Partitioner | None,
    buckets: int,
    writer: WriteName,
) -> LevelState:
    assert isinstance(node.operation, Stateful)
    slots: NDArray[np.int32] | None = None
    rows = read_state(program, before, node.operation.name, raw=True)
    routes = load_routes(program.plan, None, buckets)[node.id].routes
    if program.plan.exchanges[node.id].kind == "ahead":
        assert partitioner is not None
        routes = Routes(PartitionRoute(partitioner.partitions))
        slots = partitioner.find(rows, node.operation.spec.keys) if rows.height else None
    return write_level(program, node, rows, routes, writer, slots)
