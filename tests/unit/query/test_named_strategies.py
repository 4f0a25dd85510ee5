"""Strategies with options, and slots of different power: checked as they are written, in Python, YAML and XML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli.loading import load
from anabranch.errors import FlowError
from anabranch.model.balance import Routing
from anabranch.query.nodes import Stateful
from anabranch.query.plan import check_powers, make_plan, told_slots
from anabranch.query.streams import Stream


def keyed(**given: Any) -> Stream:
    flow = ab.Flow("test")
    return flow.read(ab.memory(pl.DataFrame({"key": [1], "value": [2]}))).key_by("key", **given)


def routing_of(stream: Stream) -> Routing:
    made = stream.agg(rows=ab.count())
    assert isinstance(made.node.operation, Stateful)
    return made.node.operation.routing


def test_options_and_powers_reach_the_operator() -> None:
    routing = routing_of(keyed(routing=ab.NamedStrategy("weight-hash", weights=[50, 30, 20])))
    assert (routing.strategy, dict(routing.options)) == ("weight-hash", {"weights": (50, 30, 20)})
    assert routing.powers_over(3) == (50, 30, 20)
    assert routing_of(keyed(routing=ab.NamedStrategy("auto", powers=[2, 1]))).powers_over(2) == (2.0, 1.0)
    assert routing_of(keyed(routing="least-key")) == routing_of(keyed(routing=ab.NamedStrategy("least-key")))


def test_slots_that_come_later_are_as_strong_as_the_mean() -> None:
    routing = routing_of(keyed(routing=ab.NamedStrategy("ranges", powers=[3, 1])))
    assert routing.powers_over(4) == (3.0, 1.0, 2.0, 2.0)
    assert routing.powers_over(1) == (3.0,)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (
            ("weight-hash", {"weights": [50, 30]}),
            r"weights \[50, 30\] sum to 80; they must be at least 0 and sum to 100",
        ),
        (("weight-hash", {"weights": [100, 0]}), "a slot of weight 0 would only be idle"),
        (("weight-hash", {"weights": "50,50"}), "weights are '50,50'; give a list with one number a slot"),
        (("weight-hash", {"weights": [True, 99]}), "give a list with one number a slot"),
        (("weight-random", {"weights": [60, 60]}), "sum to 120"),
        (("least-key", {"stick": True}), "'least-key' has no option 'stick'; did you mean 'sticky'"),
        (("least-key", {"sticky": "yes"}), "the option sticky is 'yes'; give true or false"),
        (("least-count-history", {"with_history": True}), "has no option 'with_history'"),
        (("hash", {"weights": [50, 50]}), "'hash' has no option 'weights'; its options are none"),
        (("consistent-hash", {"points_a_slot": 0}), "points_a_slot is 0; give a whole number above 0"),
        (("d-choices", {"threshold": -1}), "threshold is -1; give a number above 0"),
        (("auto", {"sticky": True}), "auto takes powers and no other option, found sticky"),
        (
            ("weight-hash", {"weights": [50, 50], "powers": [1, 2, 3]}),
            "2 weights and 3 powers; give one of each a slot",
        ),
        (("magic", {}), "unknown routing 'magic'; there are auto, hash"),
    ],
)
def test_what_a_strategy_cannot_be_given_is_refused_as_it_is_written(
    named: tuple[str, dict[str, Any]], words: str
) -> None:
    with pytest.raises(FlowError, match=f"key_by: .*{words}"):
        keyed(routing=ab.NamedStrategy(named[0], **named[1]))


@pytest.mark.parametrize("powers", [[], [1, 0], [1, -2], [1, float("nan")], ["1"], "12", [True, 1], 3])
def test_powers_are_numbers_above_0(powers: Any) -> None:
    with pytest.raises(FlowError, match="powers are"):
        ab.NamedStrategy("auto", powers=powers)


def test_what_is_no_strategy_is_refused() -> None:
    with pytest.raises(FlowError, match=r"routing is 3; give a name, or ab.NamedStrategy\(name, …\)"):
        keyed(routing=3)


def test_a_flow_has_as_many_slots_as_weights_unless_it_is_told_otherwise() -> None:
    stream = keyed(routing=ab.NamedStrategy("weight-hash", weights=[50, 30, 20])).agg(rows=ab.count())
    assert told_slots(stream.graph) == 3
    check_powers(make_plan(stream.graph, 3))
    with pytest.raises(FlowError, match=r"agg: there are 3 weights \(50,30,20\) for 4 slots; .*slots=3"):
        check_powers(make_plan(stream.graph, 4))


YAML = """flow: weighted
sources: {a: {generate: {total_rows: 10}}}
streams: {b: {from: a, steps: [{key_by: key, routing: %s}, {agg: {n: count}}], to: console}}
"""
XML = """<flow name="weighted"><source name="a"><generate total_rows="10"/></source>
<stream name="b" from="a"><key_by%s</key_by><agg><n>count</n></agg><to>console</to></stream></flow>
"""


@pytest.mark.parametrize(
    ("in_yaml", "in_xml", "named"),
    [
        ("least-key", ' routing="least-key">key', ab.NamedStrategy("least-key")),
        (
            "{weight-hash: {weights: [50, 30, 20]}}",
            "><column>key</column><routing><weight-hash><weights>50</weights><weights>30</weights><weights>20</weights>"
            "</weight-hash></routing>",
            ab.NamedStrategy("weight-hash", weights=[50, 30, 20]),
        ),
        (
            "{least-count: {sticky: true, with_history: true, powers: [2, 1]}}",
            '>key<routing><least-count sticky="true" with_history="true"><powers>2</powers><powers>1</powers>'
            "</least-count></routing>",
            ab.NamedStrategy("least-count", sticky=True, with_history=True, powers=[2, 1]),
        ),
        (
            "{auto: {powers: [7]}}",
            ">key<routing><auto powers='7'/></routing>",
            ab.NamedStrategy("auto", powers=[7]),
        ),
    ],
)
def test_flow_files_give_a_strategy_its_options(
    tmp_path: Path, in_yaml: str, in_xml: str, named: ab.NamedStrategy
) -> None:
    for suffix, text in (("yaml", YAML % in_yaml), ("xml", XML % in_xml)):
        file = tmp_path / f"flow.{suffix}"
        file.write_text(text)
        (routing,) = [
            node.operation.routing
            for node in load(str(file)).graph.nodes.values()
            if isinstance(node.operation, Stateful)
        ]
        assert routing.named == named


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("{weight-hash: {weights: [50]}}", "streams.b.steps.0..*sum to 50"),
        ("{least-key: true}", "the options of least-key have names"),
        ("{least-key: {stick: true}}", "did you mean 'sticky'"),
        ("{least-key: {}, hash: {}}", "mapping of one name"),
    ],
)
def test_flow_files_refuse_what_a_strategy_cannot_be_given(tmp_path: Path, said: str, words: str) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(YAML % said)
    with pytest.raises(FlowError, match=words):
        load(str(file))
