"""What changed of a flow is said in words, by operator."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.structure import describe_flow, refuse_changed_flow
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import CheckpointError
from anabranch.query.plan import make_plan
from anabranch.query.streams import Stream
from anabranch.state.manifest import Manifest

Build = Callable[[Stream], Stream]


def counted(stream: Stream) -> Stream:
    return stream.key_by("sensor").watermark("ts").window("10s").agg(rows=ab.count())


def structure_of(build: Build) -> dict[str, object]:
    flow = ab.Flow("volts")
    frame = pl.DataFrame(schema={"sensor": pl.Int64, "ts": pl.Datetime("us"), "volts": pl.Float64})
    build(flow.read(ab.memory(frame))).write(ab.to_memory())
    program = FlowProgram(
        make_plan(flow, 2), dict(enumerate(flow.sources)), dict(enumerate(flow.sinks)), "memory://x", True
    )
    return describe_flow(program, 512, "operator-set")


def manifest_of(build: Build) -> Manifest:
    return Manifest("volts", structure_of(build), batch=3, epoch=1, query_id="q", start_offset=None, end_offset=None)


def changes(before: Build, after: Build) -> str:
    with pytest.raises(CheckpointError) as caught:
        refuse_changed_flow(manifest_of(before), "volts", structure_of(after))
    return str(caught.value).partition(". Stateless")[0].partition("another flow: ")[2]


def test_the_same_flow_goes_on() -> None:
    refuse_changed_flow(manifest_of(counted), "volts", structure_of(counted))


def test_another_window_is_said_in_lengths_of_time() -> None:
    found = changes(counted, lambda rows: rows.key_by("sensor").watermark("ts").window("1m30s").agg(rows=ab.count()))
    was, now = "kind tumbling, size 10s, slide 10s", "kind tumbling, size 1m30s, slide 1m30s"
    assert found == f"operator 'agg': window was {was} and is {now}"


def test_aggregates_are_compared_by_name() -> None:
    found = changes(
        lambda rows: rows.key_by("sensor").agg(rows=ab.count(), low=ab.min("volts"), gone=ab.count()),
        lambda rows: rows.key_by("sensor").agg(rows=ab.count(), low=ab.max("volts"), new=ab.count()),
    )
    assert found == (
        "operator 'agg': the aggregate 'gone' is gone; operator 'agg': the aggregate 'new' is new; operator 'agg': the "
        "aggregate 'low' was min of volts (kept as value Float64) and is max of volts (kept as value Float64)"
    )


def test_a_time_to_live_reads_as_it_was_written() -> None:
    found = changes(lambda rows: rows.distinct("sensor", ttl="1h"), lambda rows: rows.distinct("sensor"))
    assert found == "operator 'distinct': ttl was 1h and is none"
