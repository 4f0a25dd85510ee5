"""What ``join_asof()`` refuses, what it calls its columns, and what it is in a flow file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import FlowError
from anabranch.query import load_flow
from unit.query.flow_forms import CONSTRUCTORS
from unit.query.test_joining import streams


def test_keys_come_once_and_both_times_are_kept() -> None:
    left, right = streams(place=pl.String)
    joined = left.join_asof(right, by="sensor")
    assert list(joined.schema) == ["sensor", "ts", "volts", "ts_right", "volts_right", "place"]
    assert list(left.join_asof(right, on="ts", by="sensor", suffix="_then").schema)[3:] == [
        *("ts_then", "volts_then", "place")
    ]


def test_a_result_has_the_time_of_the_left_row() -> None:
    left, right = streams()
    other = right.select("sensor", since="ts", price="volts").watermark("since")
    joined = left.join_asof(other, by="sensor")
    assert joined.node.time is not None
    assert joined.node.time.column == "ts"
    counted = joined.key_by("sensor").window("1m").agg(rows=ab.count())
    assert "window_end" in counted.schema


def test_keys_may_have_different_names() -> None:
    left, right = streams()
    other = right.select("ts", device="sensor", price="volts")
    joined = left.join_asof(other, by_left="sensor", by_right="device", left_on="ts", right_on="ts")
    assert list(joined.schema) == ["sensor", "ts", "volts", "ts_right", "price"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"by": "sensr"}, "join_asof, left stream: no column 'sensr'; did you mean 'sensor'"),
        ({"by": "volts"}, "'volts' is Float64; keys are"),
        ({}, 'join_asof: say by which columns, by="sensor"'),
        ({"by": "sensor", "by_left": "sensor"}, "say by which columns"),
        ({"by_left": ["sensor", "ts"], "by_right": "sensor"}, "2 columns of the left stream and 1 of the right"),
        ({"by": "sensor", "how": "full"}, "how='full' is unknown; rows without a version stay, how='left'"),
        ({"by": "sensor", "strategy": "nearest"}, "strategy='nearest' is unknown; there is 'backward'"),
        ({"by": "sensor", "on": "tz"}, "join_asof, left stream: no column 'tz'; there are sensor, ts, volts"),
        ({"by": "sensor", "on": "volts"}, "the left stream follows 'ts', and not 'volts'"),
        ({"by": "sensor", "right_on": "volts"}, "the right stream follows 'ts', and not 'volts'"),
        ({"by": "sensor", "on": "ts", "right_on": "ts"}, "give it, or left_on= and right_on="),
        ({"by": "sensor", "tolerance": "0s", "allow_exact_matches": False}, "no version is older than a row"),
        ({"by": "sensor", "tolerance": "soon"}, "join_asof's tolerance"),
        ({"by": "sensor", "routing": "grid"}, "grid sends a row to several slots"),
        ({"by": "sensor", "align": "0s"}, "join_asof: align must be longer than nothing"),
        ({"by": "sensor", "suffix": ""}, "join_asof: the result would have ts, volts twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    left, right = streams()
    with pytest.raises(FlowError, match=words.replace("(", r"\(")):
        left.join_asof(right, **given)


def test_types_of_keys_must_be_the_same() -> None:
    left, right = streams(sensor=pl.String)
    with pytest.raises(FlowError, match="join_asof: 'sensor' is Int64 on the left and 'sensor' is String on the right"):
        left.join_asof(right, by="sensor")


def test_both_streams_need_event_time() -> None:
    left, right = streams()
    with pytest.raises(FlowError, match=r"join_asof: .* the right stream has none: select sensor leaves no 'ts'"):
        left.join_asof(right.select("sensor"), by="sensor")
    with pytest.raises(FlowError, match="join_asof: the left stream keeps time per key"):
        left.watermark("ts", per="key").join_asof(right, by="sensor")


def test_streams_of_other_flows_and_other_things_are_refused() -> None:
    left, _ = streams()
    with pytest.raises(FlowError, match="join_asof takes streams of one flow"):
        left.join_asof(streams()[0], by="sensor")
    with pytest.raises(FlowError, match="join_asof takes streams of the same flow, found"):
        left.join_asof(pl.DataFrame(), by="sensor")


YAML = """
flow: prices
sources:
  sold: {files: {path: sold, format: json, schema: {item: int64, at: datetime}}}
  prices: {files: {path: prices, format: json, schema: {article: int64, since: datetime, price: int64}}}
streams:
  priced:
    from: sold
    steps:
      - watermark: {column: at, delay: 5s}
      - join_asof:
          {with: versions, by_left: item, by_right: article, tolerance: 30d, how: inner, allow_exact_matches: false}
        name: priced
        routing: {weight-hash: {weights: [60, 40]}}
        balance: off
    to: [{console: {}}]
  versions:
    from: prices
    steps:
      - watermark: {column: since, delay: 5s}
"""
XML = """
<flow name="prices">
  <source name="sold">
    <files path="sold" format="json"><schema><item>int64</item><at>datetime</at></schema></files>
  </source>
  <source name="prices">
    <files path="prices" format="json">
      <schema><article>int64</article><since>datetime</since><price>int64</price></schema>
    </files>
  </source>
  <stream name="priced" from="sold">
    <watermark column="at" delay="5s"/>
    <join_asof with="versions" by_left="item" by_right="article" tolerance="30d" how="inner"
               allow_exact_matches="false" name="priced" balance="off">
      <routing><weight-hash><weights>60</weights><weights>40</weights></weight-hash></routing>
    </join_asof>
    <to><console/></to>
  </stream>
  <stream name="versions" from="prices"><watermark column="since" delay="5s"/></stream>
</flow>
"""


def test_flow_files_have_as_of_joins_and_explain_shows_both_inputs(tmp_path: Path) -> None:
    for name in ("sold", "prices"):
        (tmp_path / name).mkdir()
    shown = []
    for name, text in (("flow.yaml", YAML), ("flow.xml", XML)):
        (tmp_path / name).write_text(text)
        shown.append(load_flow(tmp_path / name, constructors=CONSTRUCTORS).graph.explain())
    assert shown[0] == shown[1]
    assert "inner join by item = article with the version as of at, at most 30d old" in shown[0]
    assert "as the left of the join" in shown[0]
    assert "as the right of the join" in shown[0]
    (tmp_path / "flow.yaml").write_text(YAML.replace("with: versions", "with: version"))
    with pytest.raises(FlowError, match="steps: join_asof with: unknown 'version'; did you mean 'versions'"):
        load_flow(tmp_path / "flow.yaml", constructors=CONSTRUCTORS)
