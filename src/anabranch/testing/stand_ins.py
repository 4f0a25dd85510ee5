"""What stands in for the sources, sinks and tables of a flow, so that a test has them in its hands."""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.connectors.global_stores.sink import GlobalStoreSink
from anabranch.connectors.lookups.frames import FrameTable
from anabranch.connectors.partitioner import Partitioner
from anabranch.engine.batches.outer_rows import OuterSource
from anabranch.errors import FlowError, SourceError, name_alternatives
from anabranch.model import PlannedSplits, ProcessSpec, ReadOutcome, Sink, Split, StagedFile
from anabranch.model.identities import Identity, identify
from anabranch.query.graph import FlowGraph
from anabranch.query.lookups import Lookup
from anabranch.query.nodes import FlowSource, Node, Operation, Output, Readable, Stateful
from anabranch.testing.given_rows import Rows, read_rows

Chosen = bool | Collection[str | int]
"""All, none, or some by name or number."""
Tables = Mapping[str | int, Rows]
"""The table of a lookup, by its number in the flow or a part of its label → the rows that stand in for it."""

DEAD_LETTERS = Identity("dead letters")


@dataclass(slots=True)
class GivenRows:
    """What a test has added to a source, for as long as the tester lives, whoever drives the flow."""

    parts: list[tuple[str, pl.DataFrame]] = field(default_factory=list)
    """(partition, rows), as they were added."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tells apart what was added to this tester and to an earlier one on the same checkpoint."""


@dataclass(slots=True, eq=False)
class GivenSource:
    """Stands in for a source: its rows are those that a test adds."""

    real: Readable
    given: GivenRows = field(default_factory=GivenRows)

    @property
    def label(self) -> str:
        return self.real.label

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return self.real.schema

    @property
    def identity(self) -> Identity:
        """Be the real one to the checkpoint, so that what it would refuse of that is refused here, too."""
        return identify(self.real)

    @property
    def partitioned_by(self) -> Partitioner | None:
        return getattr(self.real, "partitioned_by", None)

    @property
    def names_partitions(self) -> bool:
        return not isinstance(self.real, OuterSource) and getattr(self.real, "names_partitions", True)

    def add(self, rows: pl.DataFrame, partition: str) -> None:
        """Take rows in; where a partitioner says so, and nobody else, each goes to its partition."""
        partitioner = self.partitioned_by
        if not partition and partitioner is not None and partitioner.keys:
            self.given.parts += [(str(number), part) for number, part in partitioner.split_frame(rows)]
        else:
            self.given.parts.append((partition, rows))

    def check(self) -> None:
        """Raise nothing: the real one is not looked for."""

    def planner(self) -> GivenPlanner:
        return GivenPlanner(self)

    def read(self, split: Split) -> Iterator[ReadOutcome]:
        if split.get("given") != self.given.token:
            msg = (
                f"{self.label}: the batch reads rows that no test has added here, but the real source or another "
                "tester; let that end its batch first, or begin with a new checkpoint"
            )
            raise SourceError(msg)
        yield ReadOutcome(self.given.parts[split["part"]][1])


@dataclass(frozen=True, slots=True)
class GivenPlanner:
    """Lets a batch read whatever was added before it."""

    source: GivenSource

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        given, read = self.source.given, self._count_read(position)
        splits = tuple(
            {"given": given.token, "part": number, "partition": partition, "bytes": int(rows.estimated_size())}
            for number, (partition, rows) in enumerate(given.parts)
            if number >= read
        )
        return PlannedSplits(splits, {"given": given.token, "parts": len(given.parts)})

    def bound(self) -> None:
        """Nothing comes while a batch runs."""

    def more(self, position: dict[str, Any] | None) -> bool:
        return self._count_read(position) < len(self.source.given.parts)

    def _count_read(self, position: dict[str, Any] | None) -> int:
        mine = position is not None and position.get("given") == self.source.given.token
        return int(position["parts"]) if mine and position is not None else 0


@dataclass(slots=True, eq=False)
class KeptSink:
    """Stands in for a sink: keeps what every batch publishes, once, however often it is published."""

    label: str
    identity: Identity
    """That of the real one."""
    published: dict[int, pl.DataFrame] = field(default_factory=dict)
    """Batch → its results, of batches that have some."""
    suffix: str = ".arrow"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise nothing: every Polars type can be kept."""

    def encode(self, frame: pl.DataFrame) -> bytes:
        return encode_arrow(frame)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        # What was staged before this checkpoint came into a test is not for us to read.
        frame = read_staged([(file, path) for file, path in staged if path.endswith(self.suffix)])
        if frame is not None:
            self.published[batch] = frame

    def retract(self, after_batch: int) -> None:
        for batch in [batch for batch in self.published if batch > after_batch]:
            del self.published[batch]


def stand_in(flow: FlowGraph, folder: str, real_sources: Chosen, real_sinks: Chosen, tables: Tables) -> FlowGraph:
    """Return the flow with everything around it replaced, but for what is to stay real.

    Processors are copied, as Spark does when it sends them to tasks: what one keeps in itself ends with its driver.
    """
    sources, outputs = flow.named_sources(), flow.outputs()
    kept_sources = _choose("source", real_sources, [source.name for source in sources])
    kept_sinks = _choose("sink", real_sinks, [output.name for output in outputs])
    lookups = _find_tables(flow, tables)
    graph = FlowGraph(flow.name)
    graph.sources = [
        source if index in kept_sources else GivenSource(source) for index, source in enumerate(flow.sources)
    ]
    graph.sinks = [
        sink if index in kept_sinks else _stand_in_sink(sink, os.path.join(folder, f"store-{index}.db"))
        for index, sink in enumerate(flow.sinks)
    ]
    graph.dead_letter_sink = flow.dead_letter_sink if real_sinks is True else KeptSink(str(DEAD_LETTERS), DEAD_LETTERS)

    def replaced(node: Node) -> Operation:
        match node.operation:
            case FlowSource(index=index) as source:
                return replace(source, source=graph.sources[index])
            case Output(index=index) as output:
                return replace(output, sink=graph.sinks[index])
            case Lookup() as lookup if node.id in lookups:
                return replace(lookup, table=lookups[node.id])
            case Stateful(spec=ProcessSpec() as spec) as stateful:
                return replace(stateful, spec=replace(spec, processor=_copy(spec.processor, stateful.name)))
        return node.operation

    graph.nodes = {id: replace(node, operation=replaced(node)) for id, node in flow.nodes.items()}
    return graph


def _stand_in_sink(sink: Sink, file: str) -> Sink:
    # Where partial results meet in a store, only a store can make results of them.
    return sink.moved_to(file) if isinstance(sink, GlobalStoreSink) else KeptSink(sink.label, identify(sink))


def _copy(processor: object, name: str) -> object:
    try:
        return copy.deepcopy(processor)
    except Exception as error:
        msg = (
            f"process {name}: {type(processor).__name__} cannot be copied, as it is when it is sent to tasks: "
            f"{type(error).__name__}: {error}; let it make what cannot be sent when it is first used"
        )
        raise FlowError(msg) from error


def _choose(role: str, chosen: Chosen, names: Sequence[str | None]) -> set[int]:
    """Return the places of those sources or sinks that are to stay real."""
    if isinstance(chosen, bool):
        return set(range(len(names))) if chosen else set()
    if isinstance(chosen, str):
        msg = f"real_{role}s={chosen!r} is a text; give a list of names or numbers, such as [{chosen!r}], or True"
        raise FlowError(msg)
    return {find_place(role, one, names) for one in chosen}


def find_place(role: str, wanted: str | int, names: Sequence[str | None]) -> int:
    """Return the place of a source, sink or table that is named, or numbered as it is written in the flow."""
    if isinstance(wanted, int) and 0 <= wanted < len(names):
        return wanted
    if wanted in names and isinstance(wanted, str):
        return names.index(wanted)
    known = [str(number) if name is None else name for number, name in enumerate(names)]
    msg = f"no {role} {wanted!r}; {name_alternatives(str(wanted), known)}"
    raise FlowError(msg)


def _find_tables(flow: FlowGraph, tables: Tables) -> dict[int, FrameTable]:
    """Return lookup node → the rows that stand in for its table."""
    lookups = {node.id: node.operation for node in flow.nodes.values() if isinstance(node.operation, Lookup)}
    labels = {id: lookup.table.label for id, lookup in lookups.items()}
    found: dict[int, FrameTable] = {}
    for wanted, rows in tables.items():
        for id in _find_lookups(wanted, labels):
            columns = {**lookups[id].keys, **lookups[id].columns}
            found[id] = FrameTable(read_rows(rows, columns, f"lookups[{wanted!r}]"))
    return found


def _find_lookups(wanted: str | int, labels: Mapping[int, str]) -> list[int]:
    """Return the lookup nodes that are meant: steps that look into the same table have the same label."""
    if isinstance(wanted, int):
        return [list(labels)[find_place("lookup", wanted, list(labels.values()))]]
    fitting = [id for id, label in labels.items() if wanted in label]
    if len({labels[id] for id in fitting}) != 1:
        said = "is a part of several labels" if fitting else "is no part of a label"
        msg = f"lookups: {wanted!r} {said}; the flow looks rows up in: {'; '.join(labels.values()) or 'nothing'}"
        raise FlowError(msg)
    return fitting
