"""A flow's sources and sinks under the numbers by which its checkpoint knows them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from anabranch.engine.batches.outer_rows import OUTER_STREAM, OuterSource
from anabranch.errors import CheckpointError
from anabranch.model import Sink, Split
from anabranch.model.identities import identify
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import Readable
from anabranch.query.plan import Plan
from anabranch.state.endpoints import (
    Endpoints,
    Matched,
    Written,
    fill_in,
    load_endpoints,
    match,
    number_first,
    store_endpoints,
)
from anabranch.state.manifest import Manifest
from anabranch.state.split_log import BEFORE_FIRST, SplitLog
from anabranch.state.store import Store

logger = logging.getLogger("anabranch")


@dataclass(frozen=True, slots=True)
class FlowEndpoints:
    """Which of a checkpoint's sources and sinks those of a flow are."""

    sources: Mapping[int, Readable]
    """By number, in the order in which they are written."""
    sinks: Mapping[int, Sink]
    before: Endpoints | None
    """What the checkpoint said when it was asked."""
    known: Endpoints
    notes: tuple[str, ...]

    def number(self, plan: Plan) -> Plan:
        """Return the flow's plan with its sources and sinks under their numbers."""
        return plan.renumbered(tuple(self.sources), tuple(self.sinks))

    def settle(self, store: Store, epoch: int) -> None:
        """Let them count from now on, and say what changed; called once the checkpoint is this driver's."""
        if load_endpoints(store) != self.before:
            msg = "another driver changed the checkpoint's sources or sinks while this one started; start it again"
            raise CheckpointError(msg)
        if self.known != self.before:
            store_endpoints(store, self.known, epoch)
        for note in self.notes:
            logger.warning("%s", note)

    def keep_present(self, packs: Sequence[Sequence[tuple[int, int, Split]]]) -> list[list[tuple[int, int, Split]]]:
        """Return what tasks read, (ordinal, source, split), without sources that were dropped after it was planned."""
        return [[item for item in pack if item[1] in self.sources] for pack in packs]


def find_endpoints(
    graph: FlowGraph, store: Store, latest: Manifest | None, drop_sources: Collection[str] = ()
) -> FlowEndpoints:
    """Find a flow's sources and sinks in its checkpoint; raise ``CheckpointError`` if it cannot go on with them."""
    inputs = [Written(identify(source.source), source.name, source.formerly) for source in graph.named_sources()]
    outputs = [Written(identify(output.sink), output.name, output.formerly) for output in graph.outputs()]
    before = load_endpoints(store)
    if before is not None:
        sources = match("source", before.sources, inputs, drop_sources)
        sinks = match("sink", before.sinks, outputs)
        _check_spark_sources(graph, before, sources)
        notes = sources.notes + sinks.notes
    elif drop_sources:
        msg = (
            f"cannot drop the source {next(iter(drop_sources))!r}: this checkpoint knows no sources by name yet; run "
            "the flow once as it was"
        )
        raise CheckpointError(msg)
    elif latest is None and SplitLog(store).find(BEFORE_FIRST + 1) is None:
        sources, sinks = number_first("source", inputs), number_first("sink", outputs)
        notes = ()
    else:
        _check_count(latest, inputs)
        sources, sinks = fill_in("source", inputs), fill_in("sink", outputs)
        notes = (_say_filled_in(sources, sinks),)
    return FlowEndpoints(
        dict(zip(sources.numbers, graph.sources, strict=True)),
        dict(zip(sinks.numbers, graph.sinks, strict=True)),
        before,
        Endpoints(sources.known, sinks.known),
        notes,
    )


def _check_spark_sources(graph: FlowGraph, before: Endpoints, sources: Matched) -> None:
    """Raise ``CheckpointError`` for DataFrames that come or go: Spark's own checkpoint counts Spark's streams."""
    known = {source.number: source for source in before.sources if not source.gone}
    new = [
        source
        for number, source in zip(sources.numbers, graph.sources, strict=True)
        if isinstance(source, OuterSource) and number not in known
    ]
    streams = [source for source in known.values() if source.identity.kind == OUTER_STREAM]
    gone = [source for source in streams if source.number not in sources.numbers]
    if gone or any(source.streaming for source in new):
        what = f"the Spark stream {gone[0]} is gone" if gone else f"{new[0].label} {', '.join(new[0].schema)} is new"
        msg = f"{what}, and Spark's own checkpoint holds for the streams that it began with; use a new checkpoint"
        raise CheckpointError(msg)
    if new:
        msg = (
            f"{new[0].label} {', '.join(new[0].schema)} is new, and a static DataFrame belongs to the first batch, "
            "which this checkpoint has passed; use a new checkpoint"
        )
        raise CheckpointError(msg)


def _check_count(latest: Manifest | None, sources: Sequence[Written]) -> None:
    count = None if latest is None else latest.flow_structure.get("sources")
    if count is not None and count != len(sources):
        msg = (
            f"this checkpoint has read {count} sources and knows them only by their order, and the flow has "
            f"{len(sources)}; start the flow once as it was: from then on, sources may come and go"
        )
        raise CheckpointError(msg)


def _say_filled_in(sources: Matched, sinks: Matched) -> str:
    named = "; ".join(
        f"{role}s {', '.join(str(one) for one in matched.known)}"
        for role, matched in (("source", sources), ("sink", sinks))
    )
    return (
        f"this checkpoint knew its sources and sinks by their order only; they are taken as they are written: {named}"
    )
