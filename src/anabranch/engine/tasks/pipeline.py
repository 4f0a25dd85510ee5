"""Push frames through the stateless operators of a task, to exchanges, sinks and dead letters."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.connectors.lookups.cache import FOUND
from anabranch.engine.ahead.partition_key_audit import KeysReport
from anabranch.engine.tasks.blocks import DRIVER, NO_OPERATOR, Block, BlockKind, cut, encode
from anabranch.engine.tasks.content_order import order_by_content
from anabranch.engine.tasks.dead_letters import bury_rows, bury_texts
from anabranch.engine.tasks.exchange_meter import ExchangeMeter
from anabranch.engine.tasks.reader_buffers import TaskBuffers
from anabranch.engine.tasks.spec import DEAD_LETTER, BatchSpec, FlowProgram
from anabranch.engine.tasks.task_errors import failing_step
from anabranch.engine.tasks.task_reports import MeetReport, SlotReport, TaskReport, write_report
from anabranch.eventtime.bad_times import find_bad_times
from anabranch.eventtime.flow.in_batch_watermark import last_level_told
from anabranch.eventtime.flow.slot_lateness import SlotTimes, count_slot_late
from anabranch.eventtime.flow.time_guard import columns_with_new_times
from anabranch.eventtime.observations import EventTimeObserver
from anabranch.eventtime.time_range import find_rows_out_of_time
from anabranch.model import HASH, ORDER, TIME, WINDOW, JoinKernel, JoinSpec, Prepared, StagedFile
from anabranch.model.columns import PARTITION
from anabranch.model.exchanges import StoreKernel
from anabranch.model.times import NO_LIMITS
from anabranch.operators.windows.buffered_premerge import Sending
from anabranch.query.lookups import Lookup
from anabranch.query.nodes import FlowSource, LateRows, Node, Output, Stateful, Watermark
from anabranch.query.plan import Edge
from anabranch.routing import hash_keys
from anabranch.routing.join_slots import draw_for_joins, send_joined
from anabranch.routing.phases import divide_by_phase, end_of, keys_of, window_of
from anabranch.routing.routes import Routes
from anabranch.state.runs import WriteName

ROWS_MERGED_AT_ONCE = 4_000_000
"""Prepared rows that wait for a common local merge; more merge better, and cost memory."""

ORDINAL_SHIFT = 36
NOTHING: Mapping[int, Any] = {}
BEHIND_A_HOP = -1
"""The ordinal of rows that a stateful operator made: they have no place in any split."""


class Pipeline:
    """The outgoing half of one task: what it is given leaves as blocks, staged files and a report.

    Everything that leaves is a pure function of what was pushed and of the specification, in the order it was pushed.
    """

    def __init__(
        self, program: FlowProgram, spec: BatchSpec, level: int, origin: int, next_level: int | None = None
    ) -> None:
        """``level`` is the task's own (0 reads the sources), ``origin`` the slot or first split that names it.

        ``next_level`` is the one that gets what it sends: the one after its own, unless it says another.
        """
        self._program = program
        self._plan = program.plan
        self._spec = spec
        self._level = level
        self._next_level = level + 1 if next_level is None else next_level
        self._origin = origin
        self._blocks: list[Block] = []
        self._block_count = 0
        self._waiting: dict[Edge, list[pl.DataFrame]] = defaultdict(list)
        self._waiting_rows: dict[Edge, int] = defaultdict(int)
        self._results: dict[int, list[pl.DataFrame]] = defaultdict(list)
        self._rows_of_split: dict[tuple[Edge, int], int] = defaultdict(int)
        self.counters: dict[str, int] = defaultdict(int)
        self._times = EventTimeObserver()
        self._slot_times = SlotTimes()
        self._partition = ""
        self._new_times = {node.id: columns_with_new_times(node) for node in program.plan.nodes.values()}
        self._exchanged_bytes = 0
        self._sent = {head: np.zeros(phases.slots, np.int64) for head, phases in spec.routes.items()}
        """Rows that each slot got from this task so far, for routes that share out a key's rows."""
        self._drawn: dict[tuple[int, int], int] = defaultdict(int)
        """Rows of each input of a join that a number was drawn for."""
        # Tasks in which parts of keys meet have numbers behind those of slots; they send everything at once.
        holds = level == 0 or origin < spec.slots[level - 1]
        self._buffers = TaskBuffers(program, spec, level, origin) if holds else None
        self._meter = ExchangeMeter(spec.batch)
        self._bad_files: dict[str, str] = {}

    def read_from(self, partition: str) -> None:
        """Say which partition of which source the rows are of that are pushed from now on."""
        self._partition = partition

    def push(self, node: int, frame: pl.DataFrame, ordinal: int) -> None:
        """Send what left a node on to its children, without times that no stream may hold."""
        if frame.height:
            frame = self._set_apart(node, frame)
        if frame.height == 0:
            return
        for edge in self._plan.edges[node]:
            if not isinstance(self._plan.nodes[edge.node].operation, LateRows):
                self._enter(edge, frame, ordinal)

    def push_late(self, head: int, frame: pl.DataFrame, ordinal: int) -> None:
        """Send rows that came too late for a stateful operator to where the flow wants them."""
        if frame.height == 0:
            return
        for edge in self._plan.edges[head]:
            if isinstance(self._plan.nodes[edge.node].operation, LateRows):
                self.push(edge.node, frame, ordinal)

    def reject(self, source: str, rejected: tuple[tuple[str, str], ...]) -> None:
        """Keep rows that could not be used, with the reason."""
        if rejected:
            self._dead(bury_texts(source, rejected))

    def note_bad_file(self, path: str, reason: str) -> None:
        """Tell the driver of a file that cannot be used: it runs the batch anew without it."""
        self._bad_files.setdefault(path, reason)

    def apply(self, node: Node, frame: pl.DataFrame) -> pl.DataFrame:
        """Return what leaves a node that keeps no state."""
        operation = node.operation
        if isinstance(operation, Lookup):
            with failing_step(node.label, frame):
                return self._look_up(node, operation, frame)
        assert not isinstance(operation, FlowSource | Stateful | Output)
        with failing_step(node.label, frame, operation.apply):
            return operation.apply(frame)

    def drain_blocks(self) -> list[Block]:
        """Return the blocks that are ready, once."""
        ready, self._blocks = self._blocks, []
        return ready

    def finish(
        self,
        operators: Mapping[int, SlotReport] = NOTHING,
        met: Mapping[int, MeetReport] = NOTHING,
        seconds: float | None = None,
    ) -> Iterator[Block]:
        """Send what waits, write results, and close with the report, of which the arguments are a part."""
        for edge in list(self._waiting):
            self._send_waiting(edge)
        if self._buffers is not None:
            self._settle_buffers(self._buffers)
        self._tell_times()
        yield from self.drain_blocks()
        report = TaskReport(
            level=self._level,
            task=self._origin,
            counters=self.counters,
            seen=self._times.observed(),
            slot_latest_us=self._slot_times.latest_us(),
            group_latest_us=NOTHING if self._buffers is None else self._buffers.group_latest_us,
            staged={sink: self._stage(sink, frames) for sink, frames in sorted(self._results.items())},
            exchanged_bytes=self._exchanged_bytes,
            exchanges=self._meter.tallies,
            bad_files=self._bad_files,
            buffers=NOTHING if self._buffers is None else self._buffers.reports,
            partition_keys=self._partition_keys(),
            operators=operators,
            met=met,
            seconds=seconds,
        )
        if self._spec.costs is not None:
            self._spec.costs.tell(dict(self._meter.costs))
        yield Block(
            DRIVER,
            self._report_slot(),
            BlockKind.REPORT,
            NO_OPERATOR,
            input=0,
            seq=self._sequence(),
            combined=False,
            payload=report.encode(),
        )

    @property
    def send_seconds(self) -> float:
        """Processor time of sending rows on, so far."""
        return self._meter.send_seconds

    def send_to_meet(self, head: int, shared: pl.DataFrame) -> None:
        """Send unfinished rows to where they meet those of other slots."""
        slot_count = self._spec.slots[self._plan.level_of(head) - 1]
        slots = (shared.get_column(HASH) % slot_count).cast(pl.Int32).to_numpy()
        for slot, part in cut(shared, slots, slot_count):
            self._emit(slot, BlockKind.SHARED, head, True, part)

    def forward(self, block: Block) -> Block:
        """Pass a report on to the next level."""
        return replace(block, slot=self._report_slot())

    # -- inside ----------------------------------------------------------------------------------------------------

    def _enter(self, edge: Edge, frame: pl.DataFrame, ordinal: int) -> None:
        node = self._plan.nodes[edge.node]
        operation = node.operation
        if self._plan.level_of(node.id) > 0 or isinstance(operation, Stateful):
            self._route(edge, frame, ordinal)
        elif isinstance(operation, Output):
            self.counters["rows_out"] += frame.height
            self._results[operation.index].append(frame)
        else:
            assert not isinstance(operation, FlowSource | Stateful)
            if isinstance(operation, Watermark):
                frame = self._follow_time(node, operation, frame, ordinal)
            self.push(node.id, self.apply(node, frame), ordinal)

    def _set_apart(self, node: int, frame: pl.DataFrame) -> pl.DataFrame:
        # Only the columns that somebody wants are read.
        for column in (name for name in self._new_times[node] if name in frame.columns):
            found = find_rows_out_of_time(frame.get_column(column))
            if found is not None:
                rows, reason = found
                self._dead(bury_rows(frame.filter(rows), self._plan.nodes[node].label, reason))
                frame = frame.filter(~rows)
        return frame

    def _look_up(self, node: Node, operation: Lookup, frame: pl.DataFrame) -> pl.DataFrame:
        joined = self._program.lookups[node.id].join(frame)
        found = joined.get_column(FOUND)
        joined = joined.drop(FOUND)
        if operation.missing == "null" or (found.all() and not found.null_count()):
            return joined
        found = found.fill_null(value=False)
        if operation.missing == "reject":
            reason = f"no row for {', '.join(operation.keys)} in {operation.table.label}"
            self._dead(bury_rows(frame.filter(~found), node.label, reason))
        return joined.filter(found)

    def _follow_time(self, node: Node, operation: Watermark, frame: pl.DataFrame, ordinal: int) -> pl.DataFrame:
        # Windows may well end in the future: only times that a source gave can be wrong.
        limits, partition = (NO_LIMITS, "") if ordinal == BEHIND_A_HOP else (operation.limits, self._partition)
        bad_times = find_bad_times(frame.get_column(operation.column), limits, self._spec.now_us)
        for bad in bad_times:
            self._dead(bury_rows(frame.filter(bad.rows), node.label, bad.reason))
        if bad_times:
            frame = frame.filter(~pl.any_horizontal(bad.rows for bad in bad_times))
        self._times.observe(node.id, operation.clock, frame.get_column(operation.column), partition)
        return frame

    def _route(self, edge: Edge, frame: pl.DataFrame, ordinal: int) -> None:
        node = self._plan.nodes[edge.node]
        if not isinstance(node.operation, Stateful):
            self._relay(node, frame, ordinal)
            return
        spec, kernel, now = node.operation.spec, self._program.kernels[node.id], self._spec.times[node.id]
        if not isinstance(kernel, JoinKernel):
            frame = self._without_null_keys(node, spec.keys, frame)
        if frame.height == 0:
            return
        frame = frame.with_columns(self._engine_columns(edge, frame, ordinal))
        has_windows = window_of(spec) is not None and node.id in self._spec.routes
        if has_windows:
            self._slot_times.see(node.id, frame, spec.keys, self._spec.routes[node.id].routes)

        def prepare(rows: pl.DataFrame) -> Prepared:
            return (
                kernel.prepare_input(edge.input, rows, now)
                if isinstance(kernel, JoinKernel)
                else kernel.prepare(rows, now)
            )

        with failing_step(node.label, frame, prepare):
            prepared = prepare(frame)
        self.counters["late_rows"] += prepared.late_rows
        if prepared.late_rows and has_windows:
            routes = self._spec.routes[node.id].routes
            self.counters["slot_late_rows"] += count_slot_late(
                self._program.kernel_of_rows(node.id), frame, spec.keys, routes, now
            )
        if prepared.late is not None:
            self.push_late(node.id, prepared.late, ordinal)
        if prepared.frame.height == 0:
            return
        self._waiting[edge].append(prepared.frame)
        self._waiting_rows[edge] += prepared.frame.height
        if self._waiting_rows[edge] >= ROWS_MERGED_AT_ONCE:
            self._send_waiting(edge)

    def _without_null_keys(self, node: Node, keys: tuple[str, ...], frame: pl.DataFrame) -> pl.DataFrame:
        for key in keys:
            if frame.get_column(key).null_count():
                missing = pl.col(key).is_null()
                self._dead(bury_rows(frame.filter(missing), node.label, f"null key {key}"))
                frame = frame.filter(~missing)
        return frame

    def _engine_columns(self, edge: Edge, frame: pl.DataFrame, ordinal: int) -> list[pl.Series]:
        followed = self._plan.nodes[self._plan.nodes[edge.node].inputs[edge.input]].time
        columns = []
        if followed is not None:
            expression = pl.col(followed.column)
            if isinstance(frame.schema[followed.column], pl.Datetime) and frame.schema[followed.column].time_zone:  # type: ignore[attr-defined]
                expression = expression.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            expression = expression.cast(pl.Datetime("us"))
            if followed.from_windows:
                # A result belongs to the last instant of its window: it is late only where the window would be.
                expression = expression - pl.duration(microseconds=1)
            columns.append(frame.select(expression.alias(TIME)).to_series())
        if ordinal == BEHIND_A_HOP:
            columns.append(order_by_content(frame))
        else:
            start = self._rows_of_split[edge, ordinal]
            self._rows_of_split[edge, ordinal] += frame.height
            base = (ordinal << ORDINAL_SHIFT) + start
            columns.append(pl.int_range(base, base + frame.height, dtype=pl.Int64, eager=True).alias(ORDER))
        return columns

    def _send_waiting(self, edge: Edge) -> None:
        head = edge.node
        frames = self._waiting.pop(edge)
        self._waiting_rows.pop(edge)
        frame = pl.concat(frames) if len(frames) > 1 else frames[0]
        operation = self._plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        came = frame
        waits = self._buffers is not None and self._buffers.keeps(head)
        combined = waits or self._spec.way_of(head, self._program) != "plain"
        began = time.process_time()
        if combined:
            with failing_step(self._plan.nodes[head].label):
                frame = self._program.kernel_of_rows(head).combine(came)
        merge_seconds = time.process_time() - began
        with self._meter.sending(head):
            # Joins without keys have hashes of their own. Only rows of joins may have a null as their key, and then
            # they meet nobody.
            if operation.spec.keys:
                frame = frame.with_columns(hash_keys(frame, operation.spec.keys).fill_null(0).alias(HASH))
        self._meter.count(head, rows=came.height)
        if self._program.weighs(head):
            if combined:
                self._meter.compare(head, came, frame, operation.spec.keys, merge_seconds)
            else:
                self._meter.try_merge(head, frame, self._program.kernel_of_rows(head), operation.spec.keys)
        if waits:
            assert self._buffers is not None
            self._buffers.take(head, frame, came.height)
        else:
            self._send(head, frame, combined, number=edge.input)

    def _settle_buffers(self, buffers: TaskBuffers) -> None:
        """Send what is due of the rows that were held back or may be."""
        for head in buffers.heads:
            with self._meter.holding(head):
                sending = buffers.settle(head)
            self._meter.count(head, held_rows=buffers.more_rows(head))
            if self._plan.is_global(head):
                self._merge_globally(head, sending, buffers)
                continue
            if sending.held is not None:
                self._send(head, sending.held, combined=True, held=True)
            if sending.current is not None:
                self._send(head, sending.current, combined=True)

    def _merge_globally(self, head: int, sending: Sending, buffers: TaskBuffers) -> None:
        """Stage partial results for the store in which those of all tasks meet."""
        kernel = cast("StoreKernel", self._program.kernels[head])
        now = self._spec.times[head]
        parts = [(sending.held, now.fired_us), (sending.current, now.closed_us)]
        due = [kernel.by_window(rows, after_us) for rows, after_us in parts if rows is not None]
        rows = kernel.unite(due) if due else pl.DataFrame()
        if not rows.height:
            return
        self._meter.count(head, sent_rows=rows.height)
        for edge in self._plan.edges[head]:
            output = self._plan.nodes[edge.node].operation
            assert isinstance(output, Output)
            self.counters["rows_out"] += rows.height
            self._results[output.index].append(rows)
        window = window_of(self._plan.nodes[head].operation.spec)  # type: ignore[union-attr]
        if now.drains and window is not None:
            buffers.say_last_end(head, int(rows.get_column(WINDOW).max()) + window.size_us)  # type: ignore[arg-type]

    def _send(self, head: int, frame: pl.DataFrame, combined: bool, held: bool = False, number: int = 0) -> None:
        operation = self._plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        phases = self._spec.routes[head]
        before, sent_rows = self._exchanged_bytes, 0
        with self._meter.sending(head):
            if isinstance(operation.spec, JoinSpec) and operation.spec.draws:
                first = self._drawn[head, number]
                self._drawn[head, number] += frame.height
                frame = draw_for_joins(frame, first, self._seed)
            for routes, rows in divide_by_phase(frame, phases, end_of(operation.spec)):
                find_storage = partial(self._slots_of, head, routes, operation.spec.keys)
                if isinstance(operation.spec, JoinSpec):
                    sent, slots = send_joined(rows, routes, operation.spec, number, find_storage)
                else:
                    sent, slots = rows, find_storage(rows)
                sent_rows += sent.height
                for slot, part in cut(sent, slots, phases.slots):
                    kind = BlockKind.BUFFERED if held else BlockKind.ROWS
                    self._emit(slot, kind, head, combined, part, number)
        self._meter.count(head, sent_rows=sent_rows, sent_bytes=self._exchanged_bytes - before)

    def _slots_of(self, head: int, routes: Routes, keys: tuple[str, ...], rows: pl.DataFrame) -> npt.NDArray[np.int32]:
        sent = self._sent[head]
        slots = routes.storage_slots(
            keys_of(routes, rows, keys),
            first_ordinal=int(sent.sum()),
            seed=self._seed,
            slot_rows=sent[: routes.slots],
        )
        if routes.splitter is not None or len(routes.table.keys):
            sent += np.bincount(slots, minlength=len(sent))
        return slots

    @property
    def _seed(self) -> int:
        """What is drawn by chance in this task depends on, besides its rows."""
        return (self._spec.batch << 32) + (self._level << 24) + self._origin

    def _tell_times(self) -> None:
        """Tell all slots of the next level what was seen of event time: they fire by it in this batch."""
        seen = self._times.observed()
        if self._spec.in_batch is None or not seen or self._next_level > last_level_told(self._plan):
            return
        said = write_report(seen.to_json())
        for slot in range(self._spec.slots[self._next_level - 1]):
            self._blocks.append(
                Block(self._next_level, slot, BlockKind.TIMES, NO_OPERATOR, 0, self._sequence(), False, said)
            )

    def _relay(self, node: Node, frame: pl.DataFrame, ordinal: int) -> None:
        """Hand rows to a stateless operator that has slots of its own (operator parallelism), in turn."""
        slots = self._spec.slots[self._plan.level_of(node.id) - 1]
        turn = self._origin if ordinal == BEHIND_A_HOP else ordinal
        origin = (pl.lit(ordinal, pl.Int64).alias(ORDER), pl.lit(self._partition).alias(PARTITION))
        with self._meter.sending(node.id):
            self._emit(turn % slots, BlockKind.ROWS, node.id, False, frame.with_columns(origin))

    def _emit(self, slot: int, kind: BlockKind, node: int, combined: bool, rows: pl.DataFrame, number: int = 0) -> None:
        payload = encode(rows)
        self._exchanged_bytes += len(payload)
        level = self._plan.level_of(node)
        self._blocks.append(Block(level, slot, kind, node, number, self._sequence(), combined, payload, rows.height))

    def _sequence(self) -> int:
        self._block_count += 1
        return (self._level << 56) + (self._origin << 28) + self._block_count

    def _partition_keys(self) -> Mapping[int, KeysReport]:
        """Return what is to be said of a partition's keys, where it is a slot."""
        return NOTHING

    def _report_slot(self) -> int:
        if self._next_level > len(self._spec.slots):
            return 0
        return self._origin % self._spec.slots[self._next_level - 1]

    def _stage(self, sink: int, frames: list[pl.DataFrame]) -> StagedFile:
        frame = pl.concat(frames) if len(frames) > 1 else frames[0]
        encoder = self._program.sinks[sink]
        with failing_step(f"writing {encoder.label}", frame, encoder.encode):
            content = encoder.encode(frame)
        folder = f"results/{'dead' if sink == DEAD_LETTER else sink}"
        name = WriteName(self._spec.epoch, self._spec.batch, self._spec.attempt, self._spec.job)
        file = name.file(folder, (self._level << 20) + self._origin, encoder.suffix)
        self._program.store.write(file, content)
        return StagedFile(file, frame.height, len(content), self._origin)

    def _dead(self, frame: pl.DataFrame) -> None:
        self.counters["dead_rows"] += frame.height
        self._results[DEAD_LETTER].append(frame)
