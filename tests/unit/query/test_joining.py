"""What ``join()`` refuses, and what it calls its columns."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import FlowError
from anabranch.query import load_flow
from unit.query.flow_forms import CONSTRUCTORS


def streams(**changed: Any) -> tuple[Any, Any]:
    flow = ab.Flow("joins")
    schema = {"sensor": pl.Int64, "ts": pl.Datetime("us"), "volts": pl.Float64}
    left = flow.read(ab.memory(pl.DataFrame(schema=schema)))
    right = flow.read(ab.memory(pl.DataFrame(schema=schema | changed)))
    return left.watermark("ts"), right.watermark("ts")


def test_keys_come_once_and_other_columns_that_both_have_get_a_suffix() -> None:
    left, right = streams(place=pl.String)
    assert list(left.join(right, on="sensor", within="1s").schema) == [
        *("sensor", "ts", "volts", "ts_right", "volts_right", "place", "joined_at")
    ]
    assert list(left.join(right, on="sensor", window="1m", suffix="_there").schema)[-3:] == [
        *("place", "window_start", "window_end")
    ]
    assert list(left.join(right, on="sensor", within="1s", how="anti").schema) == ["sensor", "ts", "volts", "joined_at"]


def test_keys_may_have_different_names() -> None:
    left, right = streams()
    other = right.select("ts", device="sensor")
    assert list(left.join(other, left_on="sensor", right_on="device", within="1s").schema) == [
        *("sensor", "ts", "volts", "ts_right", "joined_at")
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"on": "sensr"}, "no column 'sensr'; did you mean 'sensor'"),
        ({"on": "volts"}, "'volts' is Float64; keys are"),
        ({}, 'say by which columns, on="sensor"'),
        ({"on": "sensor", "left_on": "sensor"}, "say by which columns"),
        ({"left_on": ["sensor", "ts"], "right_on": "sensor"}, "2 columns of the left stream and 1 of the right"),
        ({"on": "sensor", "how": "outer"}, "how='outer' is unknown; there are inner, left"),
        ({"on": "sensor", "how": "left"}, "a left join emits rows when no partner can come any more"),
        ({"on": "sensor", "within": "1s", "window": "1m"}, "within and window both say"),
        ({"on": "sensor", "within": "1s", "closed": "neither"}, "closed='neither' is unknown"),
        ({"on": "sensor", "within": ("1s", "-2s")}, "within is empty"),
        ({"on": "sensor", "within": ("1s", "2s", "3s")}, "one length of time, or two"),
        ({"on": "sensor", "within": "0s", "closed": "none"}, "within is empty"),
        ({"on": "sensor", "every": "1m"}, "give their length, too"),
        ({"on": "sensor", "ttl": "0s"}, "ttl must be longer than nothing"),
        ({"on": "sensor", "within": "1s", "align": "0s"}, "align must be longer than nothing, got '0s'"),
        ({"on": "sensor", "within": "1s", "align": timedelta(seconds=-1)}, "join's align must not be negative"),
        ({"on": "sensor", "within": "1s", "align": 30}, "join's align is a int, 30; give"),
        ({"on": "sensor", "within": "1s", "suffix": ""}, "the result would have ts, volts twice"),
        ({"on": "sensor", "within": "1s", "routing": "mtrix"}, "join: unknown routing 'mtrix'; there are auto, hash"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    left, right = streams()
    with pytest.raises(FlowError, match=words.replace("(", r"\(")):
        left.join(right, **given)


@pytest.mark.parametrize("routing", ["grid", "matrix", "bi", "bi6"])
@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_where_slots_see_some_partners_only_nobody_can_say_who_met_nobody(routing: str, how: Any) -> None:
    left, right = streams()
    with pytest.raises(
        FlowError, match=f"{routing} sends a row to several slots, .* of a {how} join met first, or that"
    ):
        left.join(right, on="sensor", within="1s", how=how, routing=routing)


@pytest.mark.parametrize("routing", ["grid", "matrix", "bi", "bi6"])
def test_strategies_that_place_rows_are_for_joins(routing: str) -> None:
    left, right = streams()
    with pytest.raises(FlowError, match=f"key_by: routing '{routing}' places rows, not keys, which is for joins only"):
        left.key_by("sensor", routing=routing)
    left.join(right, on="sensor", within="1s", routing=routing)
    assert "⇒ exchange to a " in left.graph.explain(slots=6)


def test_types_of_keys_must_be_the_same() -> None:
    left, right = streams(sensor=pl.String)
    with pytest.raises(FlowError, match="'sensor' is Int64 on the left and 'sensor' is String on the right; cast one"):
        left.join(right, on="sensor", within="1s")


def test_a_bound_needs_event_time_on_both_sides() -> None:
    left, right = streams()
    with pytest.raises(FlowError, match="the right stream has none: select sensor leaves no 'ts' to follow"):
        left.join(right.select("sensor"), on="sensor", within="1s")


def test_align_needs_event_time_on_both_sides() -> None:
    left, right = streams()
    with pytest.raises(FlowError, match="align compares event times, and select sensor has none: select sensor leaves"):
        left.join(right.select("sensor"), on="sensor", align="30s")


def list_edges(stream: Any) -> list[str]:
    """Return what explain says of where rows go, line by line."""
    return [line.strip("│├└─ ") for line in stream.graph.explain().splitlines() if "⇒ subquery" in line]


@pytest.mark.parametrize(
    "build",
    [
        lambda left, right: left.join(right, on="sensor", within="1s", how="full"),
        lambda left, right: left.join(right, on="sensor", window="1m"),
        lambda left, right: left.join(right, on="sensor", routing="grid"),
        lambda left, right: left.join_where(right, "abs(sensor - sensor_right) <= 1", within="1s"),
        lambda left, right: left.join_where(right, "volts > volts_right", within="1s"),
    ],
)
def test_explain_says_of_both_inputs_which_side_of_the_join_they_are(build: Any) -> None:
    left, right = streams()
    # The right one is read first: sides are not the order of sources.
    build(right, left).write(ab.console())
    assert list_edges(left) == ["⇒ subquery 1, as the right of the join", "⇒ subquery 1, as the left of the join"]


def test_explain_says_sides_along_chains_and_of_streams_joined_with_themselves() -> None:
    left, right = streams()
    chain = left.join(right, on="sensor", within="1s").join(right, on="sensor", within="1s", suffix="_again")
    chain.write(ab.console())
    assert list_edges(left) == [
        "⇒ subquery 1, as the left of the join",
        "⇒ subquery 1, as the right of the join",
        "⇒ subquery 2, as the right of the join",
        "⇒ subquery 2, as the left of the join",
    ]
    itself, _ = streams()
    itself.join(itself, on="sensor", within="1s").write(ab.console())
    assert list_edges(itself) == ["⇒ subquery 1, as the left and the right of the join"]


def test_explain_says_which_sources_are_held_back() -> None:
    left, right = streams(place=pl.String)
    left.union(right.select("sensor", "ts", "volts")).join(right, on="sensor", within="1s", align="90s").write(
        ab.console()
    )
    text = left.graph.explain()
    assert "align 1m30s: of memory (sensor, ts, volts), what is further ahead is held back" in text
    assert "memory (sensor, ts, volts, place) feeds both, and never waits" in text


def test_explain_says_of_a_join_without_bounds_that_its_state_grows_for_ever() -> None:
    left, right = streams()
    for bounds in ({"within": "1s"}, {"window": "1m"}, {"ttl": "1h"}):
        left.join(right, on="sensor", **bounds).write(ab.console())
    assert "grows for ever" not in left.graph.explain()
    left.join(right, on="sensor").write(ab.console())
    assert left.graph.explain().count("state grows for ever, as no within, window or ttl says when a row may go") == 1


def test_streams_of_other_flows_and_other_things_are_refused() -> None:
    left, _ = streams()
    with pytest.raises(FlowError, match="join takes streams of one flow"):
        left.join(streams()[0], on="sensor", within="1s")
    with pytest.raises(FlowError, match="join takes streams of the same flow, found"):
        left.join(pl.DataFrame(), on="sensor", within="1s")


def by_key(**changed: Any) -> tuple[Any, Any]:
    left, right = streams()
    return left.watermark("ts", per="key", idle="30s"), right.watermark("ts", **{"per": "key", "idle": "30s"} | changed)


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ({"per": "flow"}, 'one stream keeps time per key, the other per flow, .*; say per="key" of both, or of none'),
        ({"per": "partition"}, "one stream keeps time per key, the other per partition"),
        ({"idle": "31s"}, "found 'delay 0s per key, idle after 30s' and .* after 31s'; say the same idle, behind and"),
        ({"behind": "1h"}, "say the same idle, behind and forget of both"),
        ({"per": "group"}, 'the right stream keeps time per group, .*; say per="key", per="flow" or'),
        ({"per": "slot"}, "the right stream keeps time per slot"),
    ],
)
def test_both_streams_keep_the_same_time(clock: dict[str, Any], words: str) -> None:
    left, right = by_key(**clock)
    with pytest.raises(FlowError, match=words):
        left.join(right, on="sensor", within="1s")


@pytest.mark.parametrize("routing", ["grid", "matrix", "bi", "bi6", "pkg", "d-choices", "w-choices"])
def test_where_keys_have_their_own_time_no_strategy_spreads_all_of_them_over_slots(routing: str) -> None:
    left, right = by_key()
    with pytest.raises(FlowError, match=f"join: {routing} spreads every key over slots, and none of them would see"):
        left.join(right, on="sensor", within="1s", routing=routing)


@pytest.mark.parametrize("predicate", ["abs(volts - volts_right) < 2", "abs(sensor - sensor_right) <= 1"])
def test_rows_of_different_keys_have_no_time_in_common(predicate: str) -> None:
    left, right = by_key()
    with pytest.raises(FlowError, match="rows of different keys meet, which have no time in common"):
        left.join_where(right, predicate, within="1s")
    left.join_where(right, f"sensor = sensor_right AND {predicate}", within="1s")


def test_behind_keys_with_their_own_time_there_is_none_in_common() -> None:
    left, right = by_key(delay="5s")
    pairs = left.join(right, on="sensor", within="1s")
    with pytest.raises(FlowError, match="event time"):
        pairs.join(right.select("ts", "sensor"), on="sensor", within="1s")
    again = pairs.watermark("joined_at", per="key", idle="30s")
    assert list(again.join(right, on="sensor", within="1s", suffix="_2").schema)[-1] == "joined_at"


def test_where_rows_of_all_times_meet_it_does_not_matter_whose_time_is_kept() -> None:
    left, right = by_key(per="flow")
    assert left.join(right, on="sensor").node.time is None


def test_a_flow_file_has_joins(tmp_path: Path) -> None:
    for name in ("ads", "clicks"):
        (tmp_path / name).mkdir()
    file = tmp_path / "flow.yaml"
    file.write_text(
        """
flow: clicks
sources:
  ads: {files: {path: ads, format: json, schema: {ad: int64, shown: datetime}}}
  clicks: {files: {path: clicks, format: json, schema: {ad: int64, clicked: datetime}}}
streams:
  pairs:
    from: ads
    steps:
      - watermark: {column: shown, delay: 5s}
      - join: {with: clicked, on: ad, within: [0s, 10s], how: left, align: 30s}
        name: clicks-of-ads
    to: [{console: {}}]
  clicked:
    from: clicks
    steps:
      - watermark: {column: clicked, delay: 5s}
"""
    )
    text = load_flow(file, constructors=CONSTRUCTORS).graph.explain()
    assert "left join by ad within 0s before and 10s after" in text
    assert "align 30s" in text
    by_key = tmp_path / "by-key.yaml"
    by_key.write_text(file.read_text().replace("delay: 5s", "delay: 5s, per: key, idle: 1m"))
    text = load_flow(by_key, constructors=CONSTRUCTORS).graph.explain()
    assert "each key follows its own time: the smallest of clicked less 5s, shown less 5s" in text
    file.write_text(file.read_text().replace("with: clicked", "with: clickd"))
    with pytest.raises(FlowError, match="steps: join with: unknown 'clickd'; did you mean 'clicked'"):
        load_flow(file, constructors=CONSTRUCTORS)


def test_a_flow_file_in_xml_has_aligned_joins(tmp_path: Path) -> None:
    file = tmp_path / "flow.xml"
    file.write_text(
        """
<flow name="clicks">
  <source name="ads"><files path="ads"><schema><ad>Int64</ad><shown>Datetime</shown></schema></files></source>
  <source name="clicks"><files path="clicks"><schema><ad>Int64</ad><clicked>Datetime</clicked></schema></files></source>
  <stream name="clicked" from="clicks"><watermark column="clicked"/></stream>
  <stream name="pairs" from="ads">
    <watermark column="shown"/>
    <join with="clicked" on="ad" within="10s" align="30s"/>
    <to><console/></to>
  </stream>
</flow>
"""
    )
    assert "align 30s" in load_flow(file, constructors=CONSTRUCTORS).graph.explain()
