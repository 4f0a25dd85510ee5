"""What is around a flow under test, by the names of its sources and sinks; it outlives every driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import polars as pl

from anabranch.engine.flow_run import FlowRun
from anabranch.engine.tasks.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.engine.tasks.spec import DEAD_LETTER
from anabranch.errors import FlowError
from anabranch.model import Sink
from anabranch.query.nodes import Output, Readable
from anabranch.testing.given_rows import Rows, read_rows
from anabranch.testing.stand_ins import GivenRows, GivenSource, KeptSink, find_place

Name = str | int
"""What the flow or its checkpoint calls a source or sink, or its number as it is written in the flow."""
T = TypeVar("T")


@runtime_checkable
class ShowsFrame(Protocol):
    """A sink that can be read: memory, a global store."""

    def frame(self) -> pl.DataFrame: ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """A sink, and the columns that it gets."""

    name: str
    sink: Sink
    schema: Mapping[str, pl.DataType]

    def read(self, batch: int | None) -> pl.DataFrame:
        """Return what was written to it, in all or by one batch; where only the whole can be seen, that."""
        if isinstance(self.sink, KeptSink):
            kept = self.sink.published
            frames = [kept[number] for number in sorted(kept) if batch in (None, number)]
            return pl.concat(frames) if frames else pl.DataFrame(schema=self.schema)
        if isinstance(self.sink, ShowsFrame):
            return self.sink.frame()
        msg = f"the sink {self.name!r} is the real one: look where it writes"
        raise FlowError(msg)


class Surroundings:
    """The sources and sinks of a flow, whoever drives it."""

    def __init__(self) -> None:
        self._given: dict[int, GivenRows] = {}
        self._kept: dict[int, dict[int, pl.DataFrame]] = {}
        self._sources: dict[str, Readable] = {}
        self._outlets: dict[str, Outlet] = {}

    def bind(self, run: FlowRun) -> None:
        """Put what was given and kept so far behind the stand-ins of a driver that has started."""
        known, sources, sinks = run.endpoints.known, run.endpoints.sources, run.program.sinks
        for number, source in sources.items():
            if isinstance(source, GivenSource):
                source.given = self._given.setdefault(number, source.given)
        for number, sink in sinks.items():
            if isinstance(sink, KeptSink):
                sink.published = self._kept.setdefault(number, sink.published)
        names = {end.number: end.name for end in known.sources}
        self._sources = {names[number]: source for number, source in sources.items()}
        names = {end.number: end.name for end in known.sinks}
        schemas = {node.operation.index: node.schema for node in run.plan.outputs if isinstance(node.operation, Output)}
        outlets = [Outlet(names[number], sinks[number], schemas[number]) for number in run.endpoints.sinks]
        self._outlets = {outlet.name: outlet for outlet in outlets}
        self._dead_letters = Outlet("dead letters", sinks[DEAD_LETTER], DEAD_LETTER_SCHEMA)

    def add(self, rows: Rows, name: Name | None, partition: str) -> None:
        """Give rows to a source."""
        called, source = _find("source", name, self._sources)
        if not isinstance(source, GivenSource):
            msg = f"the source {called!r} is the real one: put rows where it reads them"
            raise FlowError(msg)
        source.add(read_rows(rows, source.schema, f"add to {called!r}"), partition)

    def results(self, name: Name | None, batch: int | None) -> pl.DataFrame:
        """Return what was written to a sink."""
        return _find("sink", name, self._outlets)[1].read(batch)

    def dead_letters(self, batch: int | None) -> pl.DataFrame:
        """Return rows that could not be used."""
        return self._dead_letters.read(batch)


def _find(role: str, wanted: Name | None, known: Mapping[str, T]) -> tuple[str, T]:
    names = list(known)
    if wanted is None and len(names) != 1:
        msg = f"the flow has {len(names)} {role}s; say which: {', '.join(names)}"
        raise FlowError(msg)
    name = names[0 if wanted is None else find_place(role, wanted, names)]
    return name, known[name]
