"""What a person reads about a plan is what the plan says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.operators.aggregates.functions import count, min
from anabranch.query import PARALLELISMS, FlowGraph, explain_mermaid, explain_svg, explain_text, make_plan
from unit.query.fakes import FakeSink, FakeSource, read_readings, timed_readings

SVG = "{http://www.w3.org/2000/svg}"


def low_voltage() -> FlowGraph:
    """Return two sources, two hops, three sinks."""
    flow = FlowGraph("low-voltage")
    readings = timed_readings(flow).filter("volts > 0")
    readings = readings.union(timed_readings(flow).filter("volts < 1000")).filter("region <> 'test'")
    alerts = readings.window("10s").agg(readings=count(), lowest=min("volts"))
    alerts.filter("lowest < 207").write(FakeSink("parquet alerts/"))
    alerts.key_by("sensor").window("1m").agg(windows=count()).write(FakeSink("json lines minutes/"))
    readings.write(FakeSink("console"))
    return flow


def svg_texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_text_counts_sources_steps_subqueries_hops_and_fan_out() -> None:
    text = explain_text(make_plan(low_voltage(), slots=8))
    assert "2 sources · 6 steps (2 stateful, 4 stateless) · 3 sinks · 3 subqueries" in text
    assert "2 exchanges = 2 hops · fan-out 8 + 8 = 16" in text


def test_text_names_keys_local_merge_and_watermark_of_every_exchange() -> None:
    text = explain_text(make_plan(low_voltage(), slots=8))
    assert text.count("exchange by sensor · fan-out 8 · local merge") == 2
    assert "fires at the watermark: the smallest of ts less 2s, ts less 2s" in text
    assert "behind windows that fire in the same batch" in text


def test_text_compares_the_three_strategies_and_marks_the_chosen_one() -> None:
    plan = make_plan(low_voltage(), slots=8, parallelism="query")
    text = explain_text(plan)
    assert "the same flow on 24 instances:" in text
    assert re.search(r"^    operator-set +2 hops × 8 slots = fan-out 16$", text, re.MULTILINE)
    assert re.search(r"^    operator +3 hops × 6 slots = fan-out 18$", text, re.MULTILINE)
    assert re.search(r"^  ▸ query +2 hops × 24 slots = fan-out 48$", text, re.MULTILINE)


def test_text_draws_a_node_with_two_inputs_once_and_refers_to_it() -> None:
    text = explain_text(make_plan(low_voltage(), slots=8))
    assert text.count("○ union of 2") == 1
    assert text.count("↪ union of 2, as above") == 1


def test_text_has_the_nodes_in_the_order_of_the_rows() -> None:
    flow = FlowGraph("chain")
    read_readings(flow).filter("volts > 0").distinct("sensor").select("sensor").write(FakeSink())
    lines = explain_text(make_plan(flow, slots=2)).splitlines()
    marks = [line.strip("│╭╰─ ")[:1] for line in lines if line.startswith("│")]
    assert "".join(marks) == "◆○⇒⇒●○■"


def test_text_says_when_rows_stay_where_they_are_read() -> None:
    flow = FlowGraph("stateless")
    read_readings(flow).filter("volts > 0").write(FakeSink())
    text = explain_text(make_plan(flow, slots=2))
    assert "no exchange: every row stays in the task that reads it" in text
    assert "no hops" in text


def test_operator_parallelism_deals_rows_out_where_there_is_no_key() -> None:
    text = explain_text(make_plan(low_voltage(), slots=8, parallelism="operator"))
    assert "exchange dealt out evenly · fan-out 6" in text


def test_polars_expressions_read_like_sql() -> None:
    flow = FlowGraph("expressions")
    read_readings(flow).filter((pl.col("volts") > 0) & (pl.col("region") == "north")).write(FakeSink())
    text = explain_text(make_plan(flow, slots=2))
    assert "volts > 0" in text and "dyn" not in text and "col(" not in text


def test_mermaid_has_a_subgraph_a_subquery_and_a_thick_arrow_an_exchange() -> None:
    plan = make_plan(low_voltage(), slots=8)
    source = explain_mermaid(plan)
    assert source.startswith("flowchart LR")
    assert source.count("subgraph ") == source.count("\n  end") == len(plan.subqueries)
    assert source.count("==>") == plan.hops
    assert "by sensor<br/>fan-out 8<br/>local merge" in source


def test_mermaid_names_every_node_once() -> None:
    names = re.findall(r"^    (s\d+n\d+)[\[(]", explain_mermaid(make_plan(low_voltage(), slots=8)), re.MULTILINE)
    assert len(names) == len(set(names)) == len(low_voltage().nodes)


def test_svg_shows_every_node_and_every_subquery() -> None:
    plan = make_plan(low_voltage(), slots=8)
    svg = explain_svg(plan)
    texts = svg_texts(svg)
    boxes = [rect for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if rect.get("class") == "box"]
    assert len(boxes) == len(plan.subqueries)
    assert {"subquery 0 · one task a split", "subquery 1 · 8 slots", "console", "fan-out 8"} <= set(texts)
    assert "2 exchanges = 2 hops · fan-out 8 + 8 = 16" in texts


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_svg_nodes_lie_in_their_boxes_and_do_not_overlap(parallelism: str) -> None:
    root = ElementTree.fromstring(explain_svg(make_plan(low_voltage(), 8, parallelism)))  # type: ignore[arg-type]
    rects = [
        (rect.get("class"), *(float(rect.get(side, "0")) for side in ("x", "y", "width", "height")))
        for rect in root.iter(f"{SVG}rect")
        if float(rect.get("width", "0")) > 20  # the legend's squares are smaller
    ]
    boxes = [rect[1:] for rect in rects if rect[0] == "box"]
    others = [rect[1:] for rect in rects if rect[0] != "box"]
    for first in range(len(others)):
        for second in range(first):
            assert not _overlap(others[first], others[second])
    for first in range(len(boxes)):
        for second in range(first):
            assert not _overlap(boxes[first], boxes[second])
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes + others)


def test_levels_go_from_left_to_right() -> None:
    root = ElementTree.fromstring(explain_svg(make_plan(low_voltage(), 8, "operator")))
    boxes = [float(rect.get("x", "0")) for rect in root.iter(f"{SVG}rect") if rect.get("class") == "box"]
    assert boxes == sorted(boxes) and len(set(boxes)) == 4


NASTY = "<script>&\"'`#quot;]]>\\"


def test_text_of_users_cannot_break_the_pictures() -> None:
    flow = FlowGraph("nasty")
    flow.read(FakeSource(label=NASTY)).filter("region <> 'a & b'").distinct("sensor").write(FakeSink(NASTY))
    plan = make_plan(flow, slots=2)
    assert NASTY in svg_texts(explain_svg(plan))
    mermaid = explain_mermaid(plan)
    assert "<script>" not in mermaid
    assert "#lt;script#gt;#amp;#quot;'#96;#35;quot;]]#gt;#92;" in mermaid


def test_flow_explains_itself_in_every_format() -> None:
    flow = low_voltage()
    assert flow.explain() == explain_text(make_plan(flow, slots=8))
    assert flow.explain("mermaid", slots=3) == explain_mermaid(make_plan(flow, slots=3))
    assert flow.explain("svg", parallelism="query") == explain_svg(make_plan(flow, 8, "query"))


def test_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(FlowError, match="unknown format 'png'; there are text, mermaid, svg"):
        low_voltage().explain("png")  # type: ignore[arg-type]


def test_flow_that_reads_nothing_cannot_be_explained() -> None:
    with pytest.raises(FlowError, match="reads nothing"):
        FlowGraph("empty").explain()


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return (
        one[0] < other[0] + other[2]
        and other[0] < one[0] + one[2]
        and one[1] < other[1] + other[3]
        and other[1] < one[1] + one[3]
    )
