"""The steering of a flow: commands, loads and restarts become changes at a boundary, or a reason why not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.control.apply import MOVED_AT_ONCE_BYTES, check_decision, choose_protocol
from anabranch.control.commands import Command
from anabranch.control.decide.balancer import Balancer
from anabranch.control.decisions import Decision, Proposal, RouteChange
from anabranch.control.facts import find_operators
from anabranch.control.observe.load_sampling import ROWS
from anabranch.control.observe.loads import OperatorLoads
from anabranch.control.operator_status import label_keys
from anabranch.model import HASH
from anabranch.model.balance import Balance
from anabranch.query.plan import name_of
from anabranch.query.streams import Stream
from anabranch.routing import (
    BucketRoute,
    KeyBatch,
    KeySample,
    ModuloRoute,
    RangeRoute,
    Routes,
    WeightRoute,
    hash_keys,
)
from anabranch.routing.phases import Earlier, PhasedRoutes
from unit.control.told_flows import BUCKETS, SECOND_US, Flow

EAGER = Balance(fewest_rows_a_slot=100)


def windowed(stream: Stream, balance: Balance | None = EAGER) -> Stream:
    return stream.key_by("key", balance=balance).window("10s").agg(rows=ab.count())


def two_operators(stream: Stream) -> None:
    keyed = stream.key_by("key", balance=EAGER)
    keyed.window("10s").agg(rows=ab.count(), name="windows")
    keyed.session("10s").agg(rows=ab.count(), name="sessions")


def hash_of(key: int) -> int:
    return int(hash_keys(pl.DataFrame({"key": pl.Series([key], dtype=pl.Int64)}), ["key"])[0])


def owners(routes: Routes, key: int) -> list[int]:
    return [share.slot for share in routes.table.owners(hash_of(key))]


FEW = list(range(200))
"""Too few for four slots to say anything of skew."""
SKEWED = [7] * 300 + list(range(200))


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    made = Flow(windowed, tmp_path, slots=4)
    made.run(FEW)
    return made


@pytest.mark.parametrize(
    ("action", "arguments", "words"),
    [
        ("move", {"key": "7", "slot": 9}, "there is no slot 9; there are 4, from 0 to 3"),
        ("move", {"key": "seven", "slot": 1}, "'seven' cannot be a value of key, which is Int64"),
        ("move", {"key": "7", "slot": -1}, "-1 is not a number from 0 on"),
        ("move", {"key": "7", "slot": None}, "None is not a number from 0 on"),
        ("split", {"key": "7", "slots": [1, 1]}, "name one of them twice"),
        ("split", {"key": "7", "slots": [1, 4]}, "there is no slot 4"),
        ("merge", {"key": "7"}, "key 7 is neither moved nor split"),
        ("slots", {"count": 0}, "0 is not a number from 1 to 10,000"),
        ("slots", {"count": "many"}, "'many' is not a number from 1 to 10,000"),
        ("slots", {"count": 1000}, "64 buckets"),
        ("strategy", {"name": "magic"}, "there is no strategy 'magic'; there are: hash"),
        ("set", {"speed": 3}, "there is no setting 'speed'; there are balance, tolerance"),
        ("set", {"tolerance": "wide"}, "'wide', which is no number"),
        ("set", {"tolerance": -1}, "tolerance is -1"),
        ("set", {"planner": "luck"}, "luck"),
        ("set", {"protocol": "magic"}, "there are auto, state, window"),
        ("set", {"sample_rate": 0}, "sample_rate is 0"),
    ],
)
def test_a_bad_command_is_refused_with_the_reason_and_changes_nothing(
    flow: Flow, action: str, arguments: Mapping[str, Any], words: str
) -> None:
    before = flow.tell("show").data
    reply = flow.tell(action, **arguments)
    assert not reply.ok
    assert words in reply.text
    assert flow.tell("show").data == before
    assert flow.begin() == {}


def test_after_a_refused_strategy_the_flow_is_balanced_as_before(flow: Flow) -> None:
    assert not flow.tell("strategy", name="magic").ok
    flow.run(SKEWED)
    assert flow.begin() != {}


def test_an_unknown_operator_is_refused_with_those_there_are(flow: Flow) -> None:
    assert flow.tell("slots", operator="join", count=3).text == "no operator 'join'; the flow has agg"


def test_before_the_first_batch_nothing_can_be_placed(tmp_path: Path) -> None:
    fresh = Flow(windowed, tmp_path)
    reply = fresh.tell("slots", count=3)
    assert (reply.ok, reply.text) == (False, "agg has not run yet; try again after the first batch")
    assert fresh.tell("set", tolerance=0.2).ok


def test_operators_that_keep_keys_whole_say_so(tmp_path: Path) -> None:
    sessions = Flow(lambda stream: stream.key_by("key").session("5s").agg(rows=ab.count()), tmp_path)
    sessions.run(FEW)
    assert sessions.tell("split", key="7", slots=[0, 1]).text == (
        "agg keeps every key whole; it can be moved, not split"
    )
    for name in ("pkg", "d-choices", "w-choices"):
        reply = sessions.tell("strategy", name=name)
        assert (reply.ok, reply.text) == (False, f"agg keeps every key whole; {name} spreads a key over slots")
    assert sessions.tell("move", key="7", slot=1).ok or sessions.tell("move", key="7", slot=0).ok


def test_keys_with_their_own_time_are_split_one_by_one(tmp_path: Path) -> None:
    def build(stream: Stream) -> Stream:
        return stream.watermark("ts", per="key").key_by("key").window("5s").agg(rows=ab.count())

    own_time = Flow(build, tmp_path)
    own_time.run(FEW)
    reply = own_time.tell("strategy", name="pkg")
    assert (reply.ok, reply.text) == (
        False,
        "agg can split single keys; pkg would spread all of them over slots",
    )
    assert own_time.tell("split", key="7", slots=[0, 1]).ok


def test_a_command_for_all_operators_is_carried_out_for_all_or_for_none(tmp_path: Path) -> None:
    both = Flow(two_operators, tmp_path, slots=4)
    both.run(FEW)
    # Windows could split the key, sessions cannot.
    assert not both.tell("split", key="7", slots=[0, 1]).ok
    assert not both.tell("strategy", name="pkg").ok
    assert both.begin() == {}
    assert [entry["strategy"] for entry in both.tell("show").data["operators"]] == ["auto", "auto"]
    both.end(FEW)
    assert both.tell("slots", count=3).ok
    assert len(both.begin()) == 2


def test_a_key_moves_splits_and_goes_home(flow: Flow) -> None:
    home = int(flow.routes.routes.storage_slots(KeyBatch.of(pl.DataFrame({"key": [7]}), ["key"]))[0])
    away = (home + 1) % 4
    assert flow.tell("move", key="7", slot=away).text == f"agg: key 7 goes to slot {away}; takes effect after batch 1"
    flow.run(FEW)
    assert owners(flow.routes.routes, 7) == [away]
    assert flow.tell("split", key="7", slots=[3, 0]).ok
    flow.run(FEW)
    assert owners(flow.routes.routes, 7) == [0, 3]
    assert flow.tell("merge", key="7").ok
    flow.run(FEW)
    assert owners(flow.routes.routes, 7) == []


def test_commands_are_carried_out_one_at_each_boundary_in_their_order(flow: Flow) -> None:
    assert flow.tell("slots", count=6).text.endswith("takes effect after batch 1")
    assert flow.tell("move", key="8", slot=5).text.endswith("takes effect after batch 2")
    flow.run(FEW)
    assert (flow.routes.slots, owners(flow.routes.routes, 8)) == (6, [])
    flow.run(FEW)
    assert (flow.routes.slots, owners(flow.routes.routes, 8)) == (6, [5])


def test_a_command_that_comes_while_a_batch_runs_builds_on_what_that_batch_changes(flow: Flow) -> None:
    flow.tell("slots", count=6)
    flow.begin()
    assert flow.tell("move", key="7", slot=5).text.endswith("takes effect after batch 2")
    flow.end(FEW)
    flow.run(FEW)
    assert (flow.routes.slots, owners(flow.routes.routes, 7)) == (6, [5])


def test_in_the_midst_of_a_change_commands_must_wait(flow: Flow) -> None:
    flow.tell("set", protocol="window")
    flow.tell("slots", count=2)
    flow.run(FEW, second=5)
    assert flow.routes.earlier is not None
    reply = flow.tell("slots", count=3)
    assert not reply.ok
    assert "in the midst of a change" in reply.text
    # The windows before the switch at 10 s end.
    flow.run(FEW, second=25)
    flow.run([], second=25)
    assert flow.routes.earlier is None
    assert flow.tell("slots", count=3).ok


def test_skew_becomes_a_change_after_the_next_batch(flow: Flow) -> None:
    assert flow.run(SKEWED) == {}
    (change,) = flow.run(SKEWED).values()
    assert "the busiest slot has" in change.reason
    assert len(owners(flow.routes.routes, 7)) > 1


def test_equal_batches_under_an_equal_clock_give_equal_decisions(tmp_path: Path) -> None:
    """What decides has no clock of its own, and nothing else that could differ."""
    decided = []
    for _ in range(2):
        flow = Flow(windowed, tmp_path, slots=4, clock=itertools.count().__next__)
        flow.run(SKEWED)
        decided.append(flow.begin())
    first, second = decided
    assert first
    assert first == second


def test_a_command_goes_before_what_was_planned(flow: Flow) -> None:
    flow.run(SKEWED)
    flow.tell("slots", count=3)
    (change,) = flow.begin().values()
    assert change.reason == "4 slots become 3"


def test_without_balance_nothing_is_watched_and_nothing_moves(tmp_path: Path) -> None:
    unbalanced = Flow(lambda stream: windowed(stream, None), tmp_path, slots=4)
    for _ in range(3):
        assert unbalanced.run(SKEWED) == {}
    assert unbalanced.steering.watches({unbalanced.plan.stateful[0].id: unbalanced.routes}) == {}


def test_balance_can_be_turned_off_and_on(flow: Flow) -> None:
    assert flow.tell("set", balance="off").ok
    assert flow.run(SKEWED) == {} == flow.run(SKEWED)
    assert flow.tell("set", balance="on", fewest_rows_a_slot=10).ok
    flow.run(SKEWED)
    assert flow.run(SKEWED) != {}


def test_of_equally_hot_keys_those_that_are_shown_have_their_text() -> None:
    hashes = np.random.default_rng(5).permutation(1_000).astype(np.uint64)
    sample = pl.DataFrame({HASH: hashes, ROWS: [1] * 1_000, "key": hashes.astype(np.int64)})
    labels = label_keys(sample, ("key",))
    assert all(labels[smallest] == str(smallest) for smallest in range(20))


def test_the_flow_shows_loads_hot_keys_and_what_is_pending(flow: Flow) -> None:
    flow.run(SKEWED)
    (entry,) = flow.tell("show").data["operators"]
    assert entry["operator"] == "agg"
    assert sum(entry["loads"]) == len(SKEWED)
    assert entry["max_over_mean"] > 1.5
    hottest = entry["hot_keys"][0]
    assert hottest["key"] == "7"
    # Of the rows, one in ten is looked at.
    assert hottest["share"] == pytest.approx(301 / len(SKEWED), abs=0.1)
    assert "mnrt" in entry["pending"]
    assert set(entry["scores"]) >= {"hash", "pkg", "plan"}
    assert entry["choice"] == "plan"
    assert entry["scores"]["plan"]["lead_rows"] > 0 == entry["scores"]["hash"]["lead_rows"]


@pytest.mark.parametrize("slots", [1, 6])
def test_a_restart_with_other_slots_changes_them_at_the_first_boundary(tmp_path: Path, slots: int) -> None:
    before = Flow(windowed, tmp_path, slots=3)
    before.run(FEW)
    after = Flow(windowed, tmp_path, slots=slots, resizes=True)
    after.manifest, after.batch = before.manifest, before.batch
    (change,) = after.run(FEW).values()
    assert change.reason == f"3 slots become {slots}"
    assert after.routes.slots == slots
    assert after.run(FEW) == {}


def test_a_restart_without_given_slots_keeps_those_of_the_checkpoint(tmp_path: Path) -> None:
    before = Flow(windowed, tmp_path, slots=3)
    before.run(FEW)
    after = Flow(windowed, tmp_path, slots=2)
    after.manifest, after.batch = before.manifest, before.batch
    assert after.run(FEW) == {}
    assert after.routes.slots == 3


def test_a_restart_in_the_midst_of_a_change_gets_its_slots_when_that_is_over(tmp_path: Path) -> None:
    before = Flow(windowed, tmp_path, slots=3)
    before.run(FEW)
    before.tell("set", protocol="window")
    before.tell("slots", count=4)
    before.run(FEW, second=5)
    assert before.routes.earlier is not None
    after = Flow(windowed, tmp_path, slots=2, resizes=True)
    after.manifest, after.batch = before.manifest, before.batch
    assert after.run(FEW, second=25) == {}
    after.run(FEW, second=25)
    assert after.routes.earlier is None
    after.run(FEW, second=25)
    assert after.routes.slots == 2


def test_a_restart_after_a_row_splitter_may_have_fewer_slots(tmp_path: Path) -> None:
    before = Flow(windowed, tmp_path, slots=5)
    before.run(SKEWED)
    assert before.tell("strategy", name="w-choices").ok
    before.run(SKEWED)
    assert before.routes.routes.splitter is not None
    after = Flow(windowed, tmp_path, slots=2, resizes=True)
    after.manifest, after.batch = before.manifest, before.batch
    after.run(FEW)
    assert after.routes.slots == 2


def test_much_state_waits_for_windows_that_end_soon(flow: Flow) -> None:
    (facts,) = find_operators(flow.plan, flow.program.kernels)
    old, new = flow.routes.routes, Routes.even(2, BUCKETS)

    def protocol(moved: float, event_seconds: float | None) -> str:
        event_us = None if event_seconds is None else event_seconds * SECOND_US
        return choose_protocol("auto", old, Proposal(new, "", moved), facts.end, event_us)

    assert protocol(MOVED_AT_ONCE_BYTES, 5) == "state"
    assert protocol(MOVED_AT_ONCE_BYTES + 1, 5) == "window"
    # Ten batches would not reach the end of a 10 s window; nor is it known when.
    assert protocol(MOVED_AT_ONCE_BYTES + 1, 0.5) == "state"
    assert protocol(MOVED_AT_ONCE_BYTES + 1, None) == "state"


WISHES = {
    "move": {"key": "7", "slot": 1},
    "split": {"key": "7", "slots": [0, 1, 2]},
    "merge": {"key": "8"},
    "strategy": {"name": "modulo"},
    "slots": {"count": 3},
}


@pytest.mark.parametrize("balance", [EAGER, None], ids=["watched", "unwatched"])
@pytest.mark.parametrize("action", WISHES)
def test_a_command_tells_the_bytes_that_it_moves(tmp_path: Path, action: str, balance: Balance | None) -> None:
    flow = Flow(lambda stream: windowed(stream, balance), tmp_path, slots=4)
    flow.state_bytes = 1 << 20
    flow.run(FEW)
    away = (int(flow.routes.routes.home_slots(KeyBatch(np.array([hash_of(8)], np.uint64)))[0]) + 1) % 4
    flow.tell("move", key="8", slot=away)
    flow.run(FEW)
    home = int(flow.routes.routes.home_slots(KeyBatch(np.array([hash_of(7)], np.uint64)))[0])
    given = {**WISHES[action], **({"slot": (home + 1) % 4} if action == "move" else {})}
    given |= {"slots": [slot for slot in range(4) if slot != home]} if action == "split" else {}
    text = flow.tell(action, **given).text
    found = re.search(r"about ([\d,]+) bytes of state move", text)
    assert found is not None, text
    moved = int(found[1].replace(",", ""))
    (change,) = flow.begin().values()
    held = 4 * flow.state_bytes
    # One of 200 keys, or what other routes do to all of them, counted here row by row.
    batch = KeyBatch.of(pl.DataFrame({"key": pl.Series(FEW, dtype=pl.Int64)}), ["key"])
    places = [routes.storage_slots(batch) for routes in (flow.routes.routes, change.routes)]
    really = held * float((places[0] != places[1]).mean())
    assert moved == pytest.approx(really, rel=0.6 if action in ("strategy", "slots") and balance is None else 0.1)


def test_commands_that_move_much_state_wait_for_windows_and_others_do_not(tmp_path: Path) -> None:
    protocols = {}
    for size in (1 << 10, MOVED_AT_ONCE_BYTES):
        flow = Flow(windowed, tmp_path, slots=4)
        flow.state_bytes = size
        for second in (0, 5):
            flow.run(FEW, second=second)
        assert flow.tell("strategy", name="consistent-hash").ok
        (change,) = flow.begin().values()
        protocols[size] = change.protocol
    assert list(protocols.values()) == ["state", "window"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"every_seconds": 0.001}, "planning is due every 0.001 s"),
        ({"every_rows": 10}, "planning is due every 10"),
        ({"balance_below": 0.9}, "of the busiest one's load, below 0.9"),
    ],
)
def test_a_trigger_that_is_set_while_the_flow_runs_decides_from_then_on(
    flow: Flow, given: dict[str, Any], reason: str
) -> None:
    flow.tell("set", imbalance_above="never")
    flow.run(SKEWED)
    assert flow.run(SKEWED) == {}
    assert flow.tell("set", imbalance_above="none", **given).ok
    flow.run(SKEWED)
    (change,) = flow.run(SKEWED).values()
    assert reason in change.reason
    (entry,) = flow.tell("show").data["operators"]
    assert given.items() <= entry["settings"].items()
    assert "imbalance_above" not in entry["settings"]


def test_an_operator_in_the_midst_of_a_change_is_left_alone(flow: Flow) -> None:
    head = flow.plan.stateful[0].id
    phases = PhasedRoutes(Routes.even(2, BUCKETS), Earlier(Routes.even(4, BUCKETS), 0))
    change = RouteChange(Routes.even(3, BUCKETS), "state")
    assert check_decision(flow.plan, {head: phases}, Decision(0, {head: change})) == Decision(0)


def test_a_change_that_cannot_wait_moves_its_state(tmp_path: Path) -> None:
    running = Flow(lambda stream: stream.key_by("key").agg(rows=ab.count()), tmp_path)
    head = running.plan.stateful[0].id
    routes = {head: PhasedRoutes(Routes.even(2, BUCKETS))}
    wanted = Decision(0, {head: RouteChange(Routes.even(3, BUCKETS), "window", "more")})
    checked = check_decision(running.plan, routes, wanted)
    assert checked.routes == {head: RouteChange(Routes.even(3, BUCKETS), "state", "more")}
    assert name_of(running.plan, head) == "agg"


def test_a_strategy_that_is_named_decides_again_when_loads_ask_for_it(tmp_path: Path) -> None:
    named = Flow(
        lambda stream: stream.key_by("key", routing="least-count", balance=EAGER).window("10s").agg(rows=ab.count()),
        tmp_path,
        slots=4,
    )
    named.run(FEW)
    (change,) = named.run(SKEWED).values()
    assert change.reason == "least-count decides, now that keys are known"
    named.run(SKEWED)
    (change,) = named.run(SKEWED).values()
    assert "least-count decides anew" in change.reason


@pytest.mark.parametrize("balance", [EAGER, None], ids=["balanced", "unbalanced"])
def test_a_restart_with_another_strategy_goes_by_it_from_the_first_sample_on(
    tmp_path: Path, balance: Balance | None
) -> None:
    def build(routing: str) -> Any:
        return lambda stream: stream.key_by("key", routing=routing, balance=balance).agg(rows=ab.count())

    before = Flow(build("hash"), tmp_path, slots=4)
    before.run(FEW)
    after = Flow(build("modulo"), tmp_path, slots=4)
    after.manifest, after.batch = before.manifest, before.batch
    assert after.run(FEW) == {}
    (change,) = after.run(FEW).values()
    assert change.routes == Routes(ModuloRoute(4))
    assert after.run(FEW) == after.run(FEW) == {}
    # What decided is in the manifest: the next start has nothing to do.
    again = Flow(build("modulo"), tmp_path, slots=4)
    again.manifest, again.batch = after.manifest, after.batch
    assert again.run(FEW) == again.run(FEW) == {}


def test_types_of_keys_and_weights_are_enough_for_the_first_row(tmp_path: Path) -> None:
    def first_routes(routing: Any, *keys: str) -> Routes:
        flow = Flow(lambda stream: stream.key_by(*keys, routing=routing).agg(rows=ab.count()), tmp_path, slots=2)
        return flow.routes.routes

    assert first_routes("modulo", "key") == Routes(ModuloRoute(2))
    assert first_routes("modulo", "name") == Routes(ModuloRoute(2, of_values=False))
    assert first_routes("modulo", "key", "value") == Routes(ModuloRoute(2, of_values=False))
    weighted = first_routes(ab.NamedStrategy("weight-hash", weights=[75, 25]), "key")
    assert weighted == Routes(WeightRoute((75, 25)))
    strong = first_routes(ab.NamedStrategy(powers=[3, 1]), "key")
    assert isinstance(strong.base, BucketRoute)
    assert strong.base.bucket_map.slot_of.count(0) == 3 * BUCKETS / 4


def test_a_strategy_can_be_asked_for_before_any_key_was_seen(tmp_path: Path) -> None:
    unwatched = Flow(lambda stream: stream.key_by("key", balance=None).agg(rows=ab.count()), tmp_path, slots=4)
    unwatched.run(FEW)
    reply = unwatched.tell("strategy", name="ranges")
    assert reply.ok
    assert "once a batch has shown it keys" in reply.text
    unwatched.run(FEW)
    (change,) = unwatched.run(FEW).values()
    assert isinstance(change.routes.base, RangeRoute)


def test_a_strategy_is_told_its_options_while_the_flow_runs(flow: Flow) -> None:
    reply = flow.tell("strategy", name="weight-hash", options={"weights": [70, 10, 10, 10]})
    assert "the strategy is weight-hash weights=70,10,10,10 from now on" in reply.text
    flow.run(SKEWED)
    flow.run(list(range(2_000)))
    (entry,) = flow.tell("show").data["operators"]
    assert np.array(entry["loads"]) / 2_000 == pytest.approx([0.7, 0.1, 0.1, 0.1], abs=0.05)
    assert (entry["strategy"], entry["options"]) == ("weight-hash", {"weights": [70, 10, 10, 10]})
    # Weighed by what the slots can bear, such loads are even.
    assert entry["powers"] == [70, 10, 10, 10]
    assert entry["max_over_mean"] < 1.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": [50, 50]}, "there are 2 weights (50,50) for 4 slots; give one a slot"),
        ({"weights": [50, 30, 10, 5]}, "sum to 95"),
        ({"weights": [25] * 4, "powers": [1, 2]}, "4 weights and 2 powers"),
        ({"name": "hash"}, "'weight-hash' has no option 'name'"),
        ({"speed": 1}, "'weight-hash' has no option 'speed'; its options are weights"),
        ({"powers": [1, 1, 1]}, "there are 3 powers (1,1,1) for 4 slots"),
    ],
)
def test_options_that_do_not_fit_are_refused_and_change_nothing(
    flow: Flow, options: dict[str, Any], words: str
) -> None:
    before = flow.tell("show").data
    reply = flow.tell("strategy", name="weight-hash", options=options)
    assert not reply.ok
    assert words in reply.text
    assert flow.tell("show").data == before


def test_a_strategy_that_cannot_decide_on_such_keys_leaves_the_flow_as_it_is(tmp_path: Path) -> None:
    """Ranges need one key column; a flow that was told to use them goes by hashes, and goes on."""
    stubborn = Flow(
        lambda stream: stream.key_by("key", "value", routing="ranges", balance=EAGER).agg(rows=ab.count()),
        tmp_path,
    )
    (facts,) = find_operators(stubborn.plan, stubborn.program.kernels)
    balancer = Balancer(facts.routing)
    sample = KeySample(np.array([1, 2], np.uint64), np.array([900.0, 100.0]))
    loads = OperatorLoads(0, 0.0, 1000, sample.counts, np.full(BUCKETS, 1.0), {}, sample, 0.0, True)
    assert balancer.consider(loads, stubborn.routes.routes) is None
    assert "ranges are cut at the quantiles" in balancer.last_reason


def test_an_operator_whose_slots_are_partitions_is_left_alone(tmp_path: Path) -> None:
    """Whoever wrote the partitions has decided where keys go."""
    ahead = Flow(
        lambda stream: stream.key_by("key", exchange="ahead").window("10s").agg(rows=ab.count()),
        tmp_path,
        slots=4,
        resizes=True,
    )
    ahead.run(SKEWED)
    assert ahead.run(SKEWED) == {}
    for action, arguments in (("slots", {"count": 8}), ("move", {"key": "1", "slot": 0}), ("set", {"tolerance": 0.1})):
        reply = ahead.steering.submit(Command("1", action, None, arguments))
        assert not reply.ok
        assert "partitions" in reply.text


def test_the_rate_of_sampling_changes_while_a_flow_runs(tmp_path: Path) -> None:
    flow = Flow(windowed, tmp_path, slots=2)
    looked_at = []
    for rate in (None, 0.25, 0.01, 1.0, "auto"):
        if rate is not None:
            assert flow.tell("set", sample_rate=rate).ok
        flow.run(list(range(1_000)))
        (shown,) = flow.tell("show").data["operators"]
        looked_at.append(shown["sampled_rows"])
        assert shown["settings"]["sample_rate"] == (rate or "auto")
    assert looked_at == [1_000, pytest.approx(250, abs=2), pytest.approx(10, abs=2), 1_000, 1_000]


def test_strategies_are_scored_on_samples_of_even_flows(tmp_path: Path) -> None:
    flow = Flow(windowed, tmp_path, slots=2)
    flow.run(list(range(1_000)))
    (shown,) = flow.tell("show").data["operators"]
    assert "nothing is due" in shown["last_decision"] or shown["max_over_mean"] > 1.05
    assert {"hash", "modulo", "least-count"} <= set(shown["scores"])


def test_what_the_last_plan_costs_is_shown(flow: Flow) -> None:
    assert "costs" not in flow.tell("show").data["operators"][0]
    flow.run(SKEWED)
    (shown,) = flow.tell("show").data["operators"]
    assert shown["costs"]["planning_seconds"] > 0
    assert shown["costs"]["table_rows"] > 0
    change = next(iter(flow.begin().values()))
    assert change.costs is not None and change.costs.to_json() == shown["costs"]


@pytest.mark.parametrize(("oversized", "slots_of_others"), [("fill", 4), ("alone", 2)])
def test_how_a_key_too_hot_for_a_slot_is_placed_can_be_set_while_a_flow_runs(
    tmp_path: Path, oversized: str, slots_of_others: int
) -> None:
    flow = Flow(windowed, tmp_path, slots=4)
    assert flow.tell("set", oversized=oversized).ok
    others = list(range(100, 900))
    flow.run([7] * 1_200 + others)
    (change,) = flow.begin().values()
    slots = change.routes.home_slots(KeyBatch.of(pl.DataFrame({"key": others}), ["key"]))
    moved = [owners(change.routes, key) or [slot] for key, slot in zip(others, slots.tolist(), strict=True)]
    assert len({slot for found in moved for slot in found}) == slots_of_others
    assert not flow.tell("set", oversized="half").ok
