"""A flow as a graph of sources, steps and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import Sink
from anabranch.model.renamed import renamed_keywords, tell_renamed
from anabranch.query.column_checks import check_kinds
from anabranch.query.endpoint_checks import check_endpoint_name, check_sink, check_source
from anabranch.query.lookups import Lookup
from anabranch.query.nodes import EventTime, FlowSource, Node, Operation, Output, Readable
from anabranch.query.plan import DEFAULT_SLOTS, Parallelism, make_plan
from anabranch.query.streams import Stream

if TYPE_CHECKING:
    from anabranch.query.explain.plans import ExplainFormat


class FlowGraph:
    """A named flow. It grows as streams are written; it runs nothing by itself."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name or any(not (c.isalnum() or c in "-_.") for c in name):
            msg = f"a flow's name has letters, digits, '-', '_' and '.', got {name!r}: it names files and metrics"
            raise FlowError(msg)
        self.name = name
        self.nodes: dict[int, Node] = {}
        self.sources: list[Readable] = []
        self.sinks: list[Sink] = []
        self.dead_letter_sink: Sink | None = None

    def __repr__(self) -> str:
        reads = ", ".join(source.label for source in self.sources) or "nothing"
        writes = ", ".join(sink.label for sink in self.sinks) or "nothing"
        steps = [node for node in self.nodes.values() if not isinstance(node.operation, FlowSource | Output)]
        return f"<Flow {self.name!r}: reads {reads}; {len(steps)} steps; writes {writes}>"

    def read(self, source: Readable, *, name: str | None = None, formerly: str | None = None) -> Stream:
        """Start a stream from a source.

        A checkpoint knows a source by what and where it is. ``name`` tells apart two that are the same in that;
        ``formerly`` names a source of the checkpoint that this one goes on from, if its place changed.

        Examples:
            >>> north = flow.read(ab.files("north", schema="sensor bigint, volts double"), name="north")
            >>> north.schema
            {'sensor': Int64, 'volts': Float64}
        """
        check_source(source)
        check_endpoint_name("read", name, [source.name for source in self.named_sources()])
        index = len(self.sources)
        schema = dict(source.schema)
        self.sources.append(source)
        return Stream(self, self.add(FlowSource(source, index, name, formerly), (), schema, source.label, None))

    def named_sources(self) -> list[FlowSource]:
        """Return the sources in the order in which they were given, with their names."""
        return [node.operation for node in self.nodes.values() if isinstance(node.operation, FlowSource)]

    def springs(self) -> list[FlowSource]:
        """Return what ``named_sources`` does: this is its old name."""
        tell_renamed("Flow.springs", "Flow.named_sources")
        return self.named_sources()

    def outputs(self) -> list[Output]:
        """Return the sinks in the order in which they were given, with their names."""
        return [node.operation for node in self.nodes.values() if isinstance(node.operation, Output)]

    def dead_letter(self, sink: Sink) -> None:
        """Send malformed rows and rows with a null key or time to this sink, instead of the checkpoint's own folder.

        Examples:
            >>> flow.dead_letter(ab.json_lines("rejected"))
        """
        check_sink(sink)
        self.dead_letter_sink = sink

    @renamed_keywords("explain", strategy="parallelism")
    def explain(
        self, format: ExplainFormat = "text", *, slots: int = DEFAULT_SLOTS, parallelism: Parallelism = "operator-set"
    ) -> str:
        """Return how the flow would run on so many slots: as text, as Mermaid or as SVG.

        Examples:
            >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.console())
            >>> print(flow.explain(slots=4).splitlines()[2])
            1 exchange = 1 hop · fan-out 4
            >>> svg = flow.explain("svg")
        """
        # Workers import this module, and draw nothing.
        from anabranch.query.explain.plans import explain

        return explain(make_plan(self, slots, parallelism), format)

    def add(
        self,
        operation: Operation,
        inputs: tuple[int, ...],
        schema: Mapping[str, pl.DataType],
        label: str,
        time: EventTime | None,
    ) -> Node:
        """Add a node and return it."""
        node = Node(len(self.nodes), operation, inputs, dict(schema), label, time)
        self.nodes[node.id] = node
        return node

    def add_sink(self, sink: Sink) -> int:
        """Take a sink in and return its place."""
        self.sinks.append(sink)
        return len(self.sinks) - 1

    def unused_name(self, wanted: str) -> str:
        """Return the name, numbered if another operator has it already."""
        taken = {node.operation.name for node in self.nodes.values() if hasattr(node.operation, "name")}
        number, name = 1, wanted
        while name in taken:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def check(self, sources: Sequence[Readable] | None = None) -> None:
        """Raise ``FlowError``, ``SourceError`` or ``SinkError`` if the flow cannot run.

        ``sources`` are the flow's own as they are with a checkpoint, if it is known.
        """
        if not self.sources:
            msg = f"flow {self.name!r} reads nothing; start it with flow.read(ab.files(...))"
            raise FlowError(msg)
        if not self.sinks:
            msg = f"flow {self.name!r} writes nothing; end it with .write(ab.parquet(...))"
            raise FlowError(msg)
        for source in self.sources if sources is None else sources:
            source.check()
        for node in self.nodes.values():
            check_kinds(node.label, node.schema)
            if isinstance(node.operation, Output):
                node.operation.sink.check(node.schema)
            elif isinstance(node.operation, Lookup):
                node.operation.table.check(node.operation.keys, node.operation.columns)
