"""Ahead KeyBy: the source's partitions are the slots of the first level, so that its rows need no exchange."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from anabranch.connectors.partitioner import Partitioner
from anabranch.engine.ahead.partition_key_audit import (
    EVERY_KEY,
    AuditedKeys,
    KeysReport,
    PartitionKeySampler,
    describe_breaches,
)
from anabranch.engine.batches.jobs import Packs
from anabranch.engine.batches.outer_rows import OuterSource
from anabranch.engine.batches.reports import BatchReport
from anabranch.engine.tasks.blocks import Block, in_order
from anabranch.engine.tasks.pipeline import Pipeline
from anabranch.engine.tasks.read_task import ReadTask
from anabranch.engine.tasks.slot_task import SlotTask, Stayed
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram, LoadsProgram
from anabranch.engine.tasks.task_errors import told_as_rows
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.errors import CheckpointError, FlowError, SourceError
from anabranch.model import OperatorTime, Split, WindowSpec
from anabranch.model.routes import MOST_SLOTS
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan, name_of
from anabranch.routing.bases.partitions import PartitionRoute
from anabranch.routing.phases import FlowRoutes, PhasedRoutes, window_of
from anabranch.routing.routes import Routes
from anabranch.state.manifest import Manifest
from anabranch.state.split_log import LogEntry

_NUMBER = re.compile(r"(\d+)$")
_STRANGERS_NAMED = 5


def heads_ahead(plan: Plan) -> tuple[int, ...]:
    """Return the stateful nodes whose slots are the source's partitions."""
    return tuple(node for node, decision in plan.exchanges.items() if decision.kind == "ahead")


def check_ahead(plan: Plan, sources: Sequence[Any], before: Manifest | None) -> None:
    """Raise ``FlowError`` if an operator is to have the source's partitions as its slots, and cannot.

    ``CheckpointError``, if it cannot because of what the checkpoint holds.
    """
    ahead = heads_ahead(plan)
    if not ahead:
        return
    for head in ahead:
        if plan.level_of(head) != 1:
            why = (
                f'parallelism="{plan.parallelism}" puts tasks between it and its source'
                if plan.parallelism != "operator-set"
                else "other stateful operators come before it"
            )
            msg = f'{plan.nodes[head].label}: exchange="ahead" is for the first operator behind a source, and {why}'
            raise FlowError(msg)
    others = [plan.nodes[head].label for head in plan.levels[0] if head not in ahead]
    if others:
        msg = (
            f'{plan.nodes[ahead[0]].label} has exchange="ahead", and {", ".join(others)} beside it has not: operators '
            "behind the same sources share their slots; say the same of all, or use flows of their own"
        )
        raise FlowError(msg)
    for source in sources:
        if isinstance(source, OuterSource) or not getattr(source, "names_partitions", True):
            msg = (
                f'{source.label}: exchange="ahead" needs a source with partitions: a Kafka topic (ab.kafka), or '
                'numbered folders (ab.files(…, recursive=True)); use exchange="routed"'
            )
            raise FlowError(msg)
    if plan.merged_globally:
        labels = ", ".join(node.label for node in plan.merged_globally)
        msg = f"{labels} merges in its readers, which are slots of {plan.nodes[ahead[0]].label} here; use two flows"
        raise FlowError(msg)
    find_partitioner(sources)
    if before is not None:
        _refuse_held_rows(plan, ahead, before)


def _refuse_held_rows(plan: Plan, ahead: Iterable[int], before: Manifest) -> None:
    held = [plan.nodes[head].label for head in ahead if before.reader_buffers.get(name_of(plan, head))]
    if held:
        msg = (
            f'{", ".join(held)} is told to use exchange="ahead", and in this checkpoint its readers hold rows back '
            f'(merge=…), of keys of any partition; run the flow once with exchange="routed" and without merge=, until '
            f'a batch has sent them, or end it with drain=True; then exchange="ahead" may be used with this checkpoint'
        )
        raise CheckpointError(msg)


def find_partitioner(sources: Iterable[Any]) -> Partitioner | None:
    """Return what the sources say that their partitions were written by; all that say so must say the same."""
    said = [source.partitioned_by for source in sources if getattr(source, "partitioned_by", None) is not None]
    texts = {repr(partitioner) for partitioner in said}
    if len(texts) > 1:
        msg = f"sources that share slots are partitioned differently: {', '.join(sorted(texts))}; write them alike"
        raise FlowError(msg)
    return said[0] if said else None


def pack_by_partition(entries: Sequence[LogEntry], labels: Mapping[int, str]) -> list[list[tuple[int, int, Split]]]:
    """Deal the splits of a batch to tasks, as (ordinal, source, split): task i reads the partitions with number i."""
    packed: dict[int, list[tuple[int, int, Split]]] = {}
    strangers = []
    for ordinal, (source, split) in enumerate(pair for entry in entries for pair in entry.splits):
        if source not in labels:
            continue  # It was dropped after this was planned.
        found = _NUMBER.search(str(split.get("partition", "")))
        if found is None or int(found[1]) >= MOST_SLOTS:
            strangers.append(f"{split.get('partition') or 'none'} of {labels[source]}")
            continue
        packed.setdefault(int(found[1]), []).append((ordinal, source, split))
    if strangers:
        msg = (
            f'exchange="ahead": the partition of a row is its slot, and these have no number below {MOST_SLOTS:,} at '
            f'their end: {", ".join(sorted(set(strangers))[:_STRANGERS_NAMED])}; name them so, or use exchange="routed"'
        )
        raise SourceError(msg)
    return [packed.get(slot, []) for slot in range(max(packed, default=-1) + 1)]


class StayingPipeline(Pipeline):
    """The outgoing half of a read task whose rows stay in it, for the slot that comes right behind."""

    def __init__(self, program: FlowProgram, spec: BatchSpec, slot: int, below: Mapping[int, int]) -> None:
        super().__init__(program, spec, 0, slot)
        self._slot = slot
        self.stayed: dict[int, Stayed] = {}
        self._partitioner = find_partitioner(program.sources.values())
        self._samplers = {
            head: PartitionKeySampler(
                _keys(program.plan, head), _window(program.plan, head), below.get(head, EVERY_KEY)
            )
            for head in heads_ahead(program.plan)
        }

    def _send(self, head: int, frame: pl.DataFrame, combined: bool, held: bool = False, number: int = 0) -> None:
        if head not in self._samplers:
            super()._send(head, frame, combined, held, number)
            return
        self._meter.count(head, sent_rows=frame.height)
        if self._partitioner is not None and self._partitioner.finds(_keys(self._plan, head)):
            self._check_places(self._partitioner, head, frame)
        self._samplers[head].see(frame)
        known = self.stayed.get(head)
        self.stayed[head] = Stayed((*(known.frames if known else ()), frame), combined)

    def _partition_keys(self) -> dict[int, KeysReport]:
        told = {head: sampler.report() for head, sampler in self._samplers.items()}
        return {head: report for head, report in told.items() if report is not None}

    def _check_places(self, partitioner: Partitioner, head: int, frame: pl.DataFrame) -> None:
        keys = _keys(self._plan, head)
        told = pl.Series("told", partitioner.find(frame, keys))
        wrong = frame.select(*keys).with_columns(told).filter(told != self._slot).unique(maintain_order=True)
        if wrong.height:
            named = "; ".join(
                f"{', '.join(str(part) for part in row[:-1])} belongs into {row[-1]}"
                for row in wrong.head(_STRANGERS_NAMED).iter_rows()
            )
            msg = (
                f"partition {self._slot} has keys ({', '.join(keys)}) that {partitioner!r} puts elsewhere: {named} "
                f'({wrong.height} keys in all); the batch is not committed. Use exchange="routed", leave '
                "partitioned_by= out if keys are whole all the same, or write the topic with that partitioner"
            )
            raise SourceError(msg)


@dataclass(frozen=True, slots=True)
class AheadTask:
    """Levels 0 and 1 in one: read the splits of a partition, and be its slot."""

    program: LoadsProgram
    spec: BatchSpec
    packs: Packs
    below: Mapping[int, int]
    """Stateful node → marks of the keys that are looked at."""
    receivers: int
    """How many tasks get what the slots send on."""

    def blocks(
        self, slot: int, outer: Iterable[tuple[int, bytes]] = (), meter: TaskMeter | None = None
    ) -> Iterator[Block]:
        """Yield what the slot of a partition sends on; sources with partitions have no rows beside their splits."""
        meter = meter or TaskMeter()
        meter.name(1, slot)
        return told_as_rows(self._blocks(slot, meter), 1, slot, self.receivers)

    def _blocks(self, slot: int, meter: TaskMeter) -> Iterator[Block]:
        program = self.program.load()
        spec = _at_slot(self.spec, heads_ahead(program.plan), slot)
        reading = ReadTask(self.program, spec, self.packs)
        pipeline = StayingPipeline(program, spec, slot, self.below)
        blocks = list(reading.read_into(pipeline, program, slot, ()))
        meter.read(pipeline.counters["rows_in"])
        meter.add_exchange(pipeline.send_seconds)
        slot_task = SlotTask(self.program, spec, 1)
        yield from slot_task.run(slot, in_order(blocks), pipeline.stayed, meter)


class AheadLevel:
    """What the driver does for a first level whose slots are partitions; nothing, if there is none such."""

    def __init__(self, program: FlowProgram) -> None:
        self._program = program
        self._plan = program.plan
        self.heads = heads_ahead(program.plan)
        self._audited: dict[int, AuditedKeys] = {}

    @property
    def active(self) -> bool:
        return bool(self.heads)

    def begin(self, routes: FlowRoutes, before: Manifest | None, packs: Packs) -> dict[int, PhasedRoutes]:
        """Return the routes of a batch behind another: a partition that is new is an empty slot more."""
        self._audited = {head: self._load_audited(before, head) for head in self.heads}
        followed = dict(routes)
        for head in self.heads:
            base = routes[head].routes.base
            slots = base.slots if isinstance(base, PartitionRoute) else 1
            followed[head] = PhasedRoutes(Routes(PartitionRoute(max(slots, len(packs)))))
        return followed

    def task(self, program: LoadsProgram, spec: BatchSpec, packs: Packs) -> AheadTask:
        """Return the task that is both a reader and a slot."""
        below = {head: known.below for head, known in self._audited.items()}
        return AheadTask(program, spec, packs, below, spec.receivers_behind(1, self._plan.levels[0]))

    def check(self, report: BatchReport, times: Mapping[int, OperatorTime]) -> dict[str, dict[str, Any]]:
        """Return what the manifest remembers of the partitions' keys; raise ``SourceError`` if a key is in two."""
        remembered = {}
        for head in self.heads:
            window = _window(self._plan, head)
            known, breaches = self._audited[head].meet(report.partition_keys.get(head, {}), window)
            if breaches:
                labels = ", ".join(source.label for source in self._program.sources.values())
                raise SourceError(describe_breaches(breaches, _keys(self._plan, head), f"the partitions of {labels}"))
            time = times[head]
            passed_us = max(time.fired_us, time.closed_us, time.fire_us)
            remembered[name_of(self._plan, head)] = known.without_closed(window, passed_us).to_json()
        return remembered

    def _load_audited(self, before: Manifest | None, head: int) -> AuditedKeys:
        known = {} if before is None else before.engine.partition_keys
        found = known.get(name_of(self._plan, head))
        return AuditedKeys() if found is None else AuditedKeys.from_json(found)


def _at_slot(spec: BatchSpec, heads: Iterable[int], slot: int) -> BatchSpec:
    """Return the batch as the task of one partition sees it: its rows are for its own slot."""
    routes = dict(spec.routes)
    for head in heads:
        base = routes[head].routes.base
        assert isinstance(base, PartitionRoute)
        routes[head] = PhasedRoutes(Routes(base.at(slot)))
    return replace(spec, routes=routes)


def _keys(plan: Plan, head: int) -> tuple[str, ...]:
    operation = plan.nodes[head].operation
    assert isinstance(operation, Stateful)
    return operation.spec.keys


def _window(plan: Plan, head: int) -> WindowSpec | None:
    operation = plan.nodes[head].operation
    assert isinstance(operation, Stateful)
    window = window_of(operation.spec)
    return None if window is not None and window.kind == "session" else window
