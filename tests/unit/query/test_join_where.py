"""What ``join_where()`` refuses, what it calls its columns, and what rows go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import FlowError
from anabranch.model.joins import JoinSpec
from anabranch.query import load_flow
from anabranch.query.nodes import Stateful
from unit.query.flow_forms import CONSTRUCTORS


def streams() -> tuple[Any, Any]:
    flow = ab.Flow("joins")
    left = pl.DataFrame(schema={"sensor": pl.Int64, "ts": pl.Datetime("us"), "volts": pl.Float64})
    right = left.with_columns(place=pl.lit("x"))
    return tuple(flow.read(ab.memory(frame)).watermark("ts") for frame in (left, right))  # type: ignore[return-value]


def spec_of(stream: Any) -> JoinSpec:
    assert isinstance(stream.node.operation, Stateful)
    assert isinstance(stream.node.operation.spec, JoinSpec)
    return stream.node.operation.spec


def test_the_result_has_all_columns_of_both() -> None:
    left, right = streams()
    joined = left.join_where(right, pl.col("volts") < pl.col("volts_right"), within="1s")
    assert list(joined.schema) == [
        *("sensor", "ts", "volts", "sensor_right", "ts_right", "volts_right", "place", "joined_at")
    ]
    with_keys = left.join_where(right, "volts < volts_b AND sensor = sensor_b", window="1m", suffix="_b")
    assert sorted(with_keys.schema) == sorted(
        ["sensor", "ts", "volts", "sensor_b", "ts_b", "volts_b", "place", "window_start", "window_end"]
    )


def test_columns_that_must_be_equal_are_keys_and_go_by_their_hash() -> None:
    left, right = streams()
    joined = left.join_where(right, "sensor = sensor_right AND volts < volts_right", within="1s")
    spec = spec_of(joined)
    assert (spec.keys, spec.draws, spec.band) == (("sensor",), False, None)
    assert joined.node.operation.routing.strategy == "auto"
    assert "⇒ exchange by sensor" in left.graph.explain()
    # Floats cannot be keys, but can be searched.
    by_volts = spec_of(left.join_where(right, "volts = volts_right", within="1s"))
    assert by_volts.keys == () and by_volts.band is not None


def test_without_equal_columns_rows_are_dealt_to_a_grid() -> None:
    left, right = streams()
    joined = left.join_where(right, "abs(volts - volts_right) <= 2", within="1s")
    spec = spec_of(joined)
    assert (spec.keys, spec.draws, spec.near) == ((), True, False)
    assert spec.band is not None and (spec.band.least, spec.band.most) == (-2, 2)
    shown = left.graph.explain(slots=6)
    assert "⇒ exchange to a grid of 2 × 3 slots" in shown
    assert "join where abs(volts - volts_right) <= 2 within 1s" in shown


def test_integers_that_are_near_are_keys_unless_a_grid_is_asked_for() -> None:
    left, right = streams()
    joined = left.join_where(right, "abs(sensor - sensor_right) <= 2 AND volts < volts_right", within="1s")
    spec = spec_of(joined)
    assert (spec.keys, spec.near, spec.draws) == (("sensor",), True, False)
    assert (spec.near_keys(0), spec.near_keys(1)) == ((-2, 2), (-2, 2))
    assert joined.node.operation.routing.strategy == "auto"
    assert "⇒ exchange by sensor, right rows also to those near it" in left.graph.explain()
    later = spec_of(left.join_where(right, "sensor_right - sensor BETWEEN 1 AND 3", within="1s", routing="ranges"))
    assert (later.near_keys(0), later.near_keys(1)) == ((1, 3), (-3, -1))
    assert spec_of(left.join_where(right, "abs(sensor - sensor_right) <= 2", routing="matrix")).draws
    assert spec_of(left.join_where(right, "abs(sensor - sensor_right) <= 20")).draws


def test_time_is_searched_where_a_predicate_has_one_end_only() -> None:
    left, right = streams()
    assert spec_of(left.join_where(right, "volts < volts_right", within="1s")).band is None
    assert spec_of(left.join_where(right, "volts < volts_right")).band is not None
    assert spec_of(left.join_where(right)).predicate is None


@pytest.mark.parametrize(
    ("predicate", "given", "words"),
    [
        ("volt < volts_right", {}, "no column 'volt' in either stream; did you mean 'volts'"),
        (pl.col("place_right") == "x", {}, "no column 'place_right' in either stream; .*place"),
        ("volts +", {}, "is no SQL expression"),
        (3, {}, "the predicate is a Polars expression or SQL, found a int"),
        ("volts + volts_right", {}, "is Float64; a predicate is true or false"),
        (pl.col("volts") > pl.col("volts_right").mean(), {}, "does not look at each pair for itself"),
        ((pl.col("volts") - pl.col("volts_right").mean()).abs() > 1, {}, "does not look at each pair for itself"),
        (pl.lit(value=True), {}, "does not look at each pair for itself; compare columns of both streams, or leave"),
        (pl.col("place") < pl.col("volts"), {}, "cannot be computed"),
        ("volts < volts_right", {"routing": "hash"}, "hash goes by keys, .* there are grid, matrix, bi"),
        ("volts < volts_right", {"routing": "bi6"}, "bi6 goes by keys"),
        ("volts < volts_right", {"within": "1s", "ttl": "1h"}, "within and ttl both say"),
        ("volts < volts_right", {"routing": "gird"}, "join_where: unknown routing 'gird'"),
    ],
)
def test_what_cannot_be_meant_is_refused(predicate: Any, given: dict[str, Any], words: str) -> None:
    left, right = streams()
    with pytest.raises(FlowError, match=words):
        left.join_where(right, predicate, **given)


YAML = """
flow: near
sources:
  a: {files: {path: a, format: json, schema: {x: int64, ts: datetime}}}
  b: {files: {path: b, format: json, schema: {x: int64, ts: datetime}}}
streams:
  pairs:
    from: a
    steps:
      - watermark: ts
      - join_where: {with: others, predicate: abs(x - x_right) <= 1, within: 10s}
        routing: matrix
        name: near
    to: [{console: {}}]
  others:
    from: b
    steps: [{watermark: ts}]
"""
XML = """<flow name="near">
<source name="a"><files path="a" format="json"><schema><x>int64</x><ts>datetime</ts></schema></files></source>
<source name="b"><files path="b" format="json"><schema><x>int64</x><ts>datetime</ts></schema></files></source>
<stream name="pairs" from="a"><watermark>ts</watermark>
<join_where with="others" predicate="abs(x - x_right) &lt;= 1" within="10s" routing="matrix" name="near"/>
<to>console</to></stream>
<stream name="others" from="b"><watermark>ts</watermark></stream></flow>
"""


@pytest.mark.parametrize(("form", "text"), [("yaml", YAML), ("xml", XML)])
def test_a_flow_file_has_predicates(tmp_path: Path, form: str, text: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    file = tmp_path / f"flow.{form}"
    file.write_text(text)
    graph = load_flow(file, constructors=CONSTRUCTORS).graph
    assert "join where abs(x - x_right) <= 1 within 10s" in graph.explain()
    (joined,) = (node.operation for node in graph.nodes.values() if isinstance(node.operation, Stateful))
    assert (joined.name, joined.routing.strategy) == ("near", "matrix")
    file.write_text(text.replace("others, pred", "other, pred").replace('with="others"', 'with="other"'))
    with pytest.raises(FlowError, match="steps: join_where with: unknown 'other'; did you mean 'others'"):
        load_flow(file, constructors=CONSTRUCTORS)
