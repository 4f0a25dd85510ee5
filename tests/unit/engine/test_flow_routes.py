"""The routes of a flow's operators: the first ones, those of the manifest, and what a change makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.control.apply import store_levels
from anabranch.control.decisions import Decision, RouteChange
from anabranch.engine.batches.batch_routes import count_slots, load_routes
from anabranch.engine.batches.reports import BatchReport, OperatorReport
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import OperatorTime, RunRef
from anabranch.query.streams import Stream
from anabranch.routing import BucketRoute, ModuloRoute, Routes
from anabranch.routing.phases import Earlier, PhasedRoutes
from anabranch.state.manifest import LevelState, Manifest
from unit.engine.programs import make_program

SECOND_US = 1_000_000
RUN = RunRef("state/0/0/run", 1, 1, "crc32:0", 0)


def windows(tmp_path: Path, routing: str = "auto") -> FlowProgram:
    return make_program(lambda rows: rows.key_by("key", routing=routing).window("10s").agg(rows=ab.count()), tmp_path)


def report(head: int, runs: tuple[tuple[RunRef, ...], ...], handoffs: tuple[tuple[RunRef, ...], ...]) -> BatchReport:
    operator = OperatorReport(runs, (0,) * len(runs), None, None, (), handoffs)
    return BatchReport({}, {}, {}, {head: operator}, 0, (), ())


def store(
    program: FlowProgram,
    phases: PhasedRoutes,
    change: RouteChange | None,
    *,
    latest_second: int | None = 15,
    fired_second: int = 0,
    runs: tuple[tuple[RunRef, ...], ...] = ((RUN,), ()),
    handoffs: tuple[tuple[RunRef, ...], ...] = (),
) -> LevelState:
    """Return what the manifest says after a batch that saw events up to one second and fired windows up to another."""
    head = program.plan.stateful[0].id
    (node,) = program.plan.watermarks[head]
    after = FlowTime({} if latest_second is None else {node: latest_second * SECOND_US})
    fired_us = fired_second * SECOND_US
    times = {head: OperatorTime(0, fired_us, fired_us, 0, fired_us)}
    decision = Decision(0, {} if change is None else {head: change})
    (level,) = store_levels(program.plan, {head: phases}, decision, times, after, report(head, runs, handoffs))
    return level


@pytest.mark.parametrize(
    ("routing", "base", "splits"),
    [
        ("auto", BucketRoute, False),
        ("hash", BucketRoute, False),
        ("modulo", ModuloRoute, False),
        # These must have seen keys first.
        ("ranges", BucketRoute, False),
        ("least-count", BucketRoute, False),
        ("pkg", BucketRoute, True),
    ],
)
def test_a_strategy_decides_the_first_routes_as_far_as_it_can(
    tmp_path: Path, routing: str, base: type, splits: bool
) -> None:
    program = windows(tmp_path, routing)
    (phases,) = load_routes(program.plan, None, 16).values()
    assert isinstance(phases.routes.base, base)
    assert (phases.slots, phases.splits, phases.earlier) == (2, splits, None)


def test_the_manifest_says_where_keys_go(tmp_path: Path) -> None:
    program = windows(tmp_path)
    phases = PhasedRoutes(Routes.even(5, 16), Earlier(Routes.even(3, 16), 7))
    before = Manifest("test", {}, 0, 1, "q", None, None, (LevelState("agg", phases.to_json(), ()),))
    assert list(load_routes(program.plan, before, 16).values()) == [phases]


def test_a_level_has_as_many_tasks_as_its_widest_operator_has_slots(tmp_path: Path) -> None:
    def two(rows: Stream) -> None:
        rows.key_by("key").agg(rows=ab.count(), name="one")
        rows.key_by("key").agg(rows=ab.count(), name="other")

    program = make_program(two, tmp_path)
    one, other = (node.id for node in program.plan.stateful)
    routes = {one: PhasedRoutes(Routes.even(3, 16)), other: PhasedRoutes(Routes.even(1, 16))}
    assert count_slots(program.plan, routes) == (3,)
    waiting = PhasedRoutes(Routes.even(1, 16), Earlier(Routes.even(6, 16), 0))
    assert count_slots(program.plan, routes | {other: waiting}) == (6,)


def test_state_that_moves_has_one_phase_from_the_next_batch_on(tmp_path: Path) -> None:
    level = store(
        windows(tmp_path),
        PhasedRoutes(Routes.even(2, 16)),
        RouteChange(Routes.even(3, 16), "state"),
        handoffs=((), (), (RUN,)),
    )
    assert PhasedRoutes.from_json(level.routes) == PhasedRoutes(Routes.even(3, 16))
    assert level.handoffs == ((), (), (RUN,))


def test_windows_that_are_open_keep_their_routes_until_they_have_fired(tmp_path: Path) -> None:
    program = windows(tmp_path)
    old, new = Routes.even(2, 16), Routes.even(3, 16)
    begun = PhasedRoutes.from_json(store(program, PhasedRoutes(old), RouteChange(new, "window")).routes)
    # The last event was in the window from 10 to 20 s.
    assert begun == PhasedRoutes(new, Earlier(old, 20 * SECOND_US))
    for fired_second, following in ((19, begun), (20, PhasedRoutes(new))):
        level = store(program, begun, None, fired_second=fired_second, runs=((), (), ()))
        assert PhasedRoutes.from_json(level.routes) == following


def test_without_any_event_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    change = RouteChange(Routes.even(3, 16), "window")
    level = store(windows(tmp_path), PhasedRoutes(Routes.even(2, 16)), change, latest_second=None)
    assert PhasedRoutes.from_json(level.routes) == PhasedRoutes(Routes.even(3, 16))


def test_slots_that_are_no_more_are_forgotten_once_they_are_empty(tmp_path: Path) -> None:
    program = windows(tmp_path)
    phases, change = PhasedRoutes(Routes.even(3, 16)), RouteChange(Routes.even(1, 16), "state")
    level = store(program, phases, change, runs=((RUN,), (), ()), handoffs=((RUN,),))
    assert level.runs == ((RUN,),)
    with pytest.raises(AssertionError, match="a slot that goes still has state"):
        store(program, phases, change, runs=((RUN,), (), (RUN,)))
