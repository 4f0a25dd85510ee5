"""When a flow grows or shrinks, and to how many executors: one step, from what comes and what it costs.

The thresholds are those of protocol 2 (target, upper and lower utilisation, imbalance), with two changes. Utilisation
is that of *arrival*: rows that come a second times what they cost, over the cores; measured utilisation stops at 1, and
a load four times as high would need four steps. And growing is quicker than shrinking.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anabranch.model.cluster import Executor, ReleaseWait
from anabranch.model.elasticity import Elasticity
from anabranch.model.measures import TaskMeasure
from anabranch.model.routes import MOST_SLOTS

Action = Literal["stay", "grow", "offload", "hold", "release", "keep"]
"""What happens at a boundary.

*grow*: more executors are asked for. *offload*: some are to get no slots any more; their slots get other homes.
*release*: those are given back, a boundary later. *hold*: not yet, for somebody waits for what they hold. *keep*: those
stay after all.
"""
_NO_WAIT = ReleaseWait()
_NEW_WEIGHT = 0.3
_ROOM_TO_SHRINK = 0.85
"""Memory must fit this well into fewer executors, or the next byte would make them grow again."""
_ALMOST = 1e-9
_NEAR_TARGET = 1.08
"""Up to so many times their target, executors are near it: one more would be brought by noise alone."""


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """What is known of the cluster and the load at the end of a batch."""

    now_seconds: float
    executors: tuple[Executor, ...]
    rows: int
    """Of the batch."""
    batch_seconds: float
    cpu_seconds: Mapping[str, float]
    """By executor, what its tasks took in the batch, those that read and slots of all levels."""
    offered_rows_per_second: float
    waiting_rows: int = 0
    """At the sources, beyond the batch."""
    held_bytes: int = 0
    """What slots hold in memory, on all executors together."""
    measures: tuple[TaskMeasure, ...] = ()
    """Of the batch's tasks."""
    wait: ReleaseWait = _NO_WAIT
    """Executors that are not to be given back yet."""


def read_cluster(
    measures: Iterable[TaskMeasure],
    executors: Iterable[Executor],
    *,
    now_seconds: float,
    rows: int,
    batch_seconds: float,
    offered_rows_per_second: float | None,
    waiting_rows: int | None,
    held_bytes: int,
) -> ClusterReading:
    """Return the reading of a batch; where sources cannot tell what comes, what was read stands for it."""
    measures = tuple(measures)
    cpu_seconds: dict[str, float] = {}
    for measure in sorted(measures, key=lambda one: (one.executor, one.level, one.slot, one.cpu_seconds)):
        cpu_seconds[measure.executor] = cpu_seconds.get(measure.executor, 0.0) + measure.cpu_seconds
    return ClusterReading(
        now_seconds=now_seconds,
        executors=tuple(sorted(executors, key=lambda executor: executor.id)),
        rows=rows,
        batch_seconds=batch_seconds,
        cpu_seconds=cpu_seconds,
        offered_rows_per_second=rows / max(batch_seconds, _ALMOST)
        if offered_rows_per_second is None
        else offered_rows_per_second,
        waiting_rows=waiting_rows or 0,
        held_bytes=held_bytes,
        measures=measures,
    )


@dataclass(frozen=True, slots=True)
class ElasticState:
    """What is remembered from one boundary to the next."""

    wanted: int | None = None
    """Executors that were asked for; None before the first reading."""
    seconds_a_row: float = 0.0
    """Processor time, followed slowly."""
    high_samples: int = 0
    low_samples: int = 0
    low_since: float = 0.0
    low_needs: tuple[tuple[float, int, int], ...] = ()
    """When, after how many low samples, and how many executors would have done: of the last low samples, those after
    which none needed as many."""
    grown_at: float = -math.inf
    changed_at: float = -math.inf
    leaving: tuple[str, ...] = ()
    """Executors whose slots got other homes at the last boundary."""
    reconfigurations: int = 0
    """How often the number of executors was changed."""

    @property
    def low_most(self) -> int:
        """The most executors that any of the last batches would have needed, while load is low."""
        return max((needed for _, _, needed in self.low_needs), default=0)


@dataclass(frozen=True, slots=True)
class ElasticDecision:
    """What happens at a boundary, and why."""

    action: Action
    executors: int
    """As many are wanted from now on."""
    slots: int
    """Of a subquery, that suit so many executors; to be made so when their number changes."""
    read_tasks: int
    """The same of tasks that read."""
    leaving: tuple[str, ...]
    """Executors that are to get no slots (*offload*, *hold*), are given back (*release*), or stay after all
    (*keep*)."""
    utilisation: float
    """The share of the cores that what comes takes; 1.7 if there is nearly twice too much."""
    deviation: float
    """Standard deviation of what executors were busy with, to be shown: homes are evened out by what slots take."""
    reason: str
    state: ElasticState


@dataclass(frozen=True, slots=True)
class _Need:
    """What a reading says of the number of executors."""

    utilisation: float
    """By what comes."""
    catching_up: float
    """By what comes, with what waits."""
    executors: int
    unbounded: int
    """As many would be right if there were no most."""
    by_memory: int
    to_shrink_to: int

    def tell(self, reading: ClusterReading) -> str:
        found = f"{reading.offered_rows_per_second:,.0f} rows/s take {self.utilisation:.0%} of the cores"
        if self.catching_up - self.utilisation >= 0.01:
            found += f", with {reading.waiting_rows:,} that wait {self.catching_up:.0%}"
        return found


@dataclass(frozen=True, slots=True)
class _Choice:
    """What happens, why, and what is remembered."""

    action: Action
    reason: str
    state: ElasticState
    leaving: tuple[str, ...] = ()


def decide_size(settings: Elasticity, state: ElasticState, reading: ClusterReading) -> ElasticDecision:
    """Return what happens at this boundary: one thing at most.

    The mean decides how many executors there are; imbalance never brings more, for whoever chooses homes sees to that.
    Executors that are too many first lose their slots, the least busy ones, and go a boundary later.
    """
    reading = replace(reading, executors=tuple(sorted(reading.executors, key=lambda executor: executor.id)))
    staying = [one for one in reading.executors if not one.is_leaving and one.id not in state.leaving]
    wanted = state.wanted if state.wanted is not None else max(1, len(staying))
    known = replace(state, wanted=wanted, seconds_a_row=_follow_cost(state.seconds_a_row, reading))
    cores = _cores_of(reading.executors)
    need = _find_need(settings, known, reading, wanted, settings.cores_per_executor or cores)
    known = _follow_samples(settings, known, reading, need, wanted)
    deviation = find_deviation(reading.cpu_seconds, staying, reading.batch_seconds, settings.cores_per_executor)
    choice = (
        _finish_leaving(settings, known, reading, need)
        or _choose_growth(settings, known, reading, need)
        or _choose_shrinking(settings, known, reading, need, staying)
        or _Choice("stay", _tell_fit(settings, need, reading, wanted), known)
    )
    size = choice.state.wanted or wanted
    parts = min(size * (settings.slots_per_executor or cores), MOST_SLOTS)
    return ElasticDecision(
        action=choice.action,
        executors=size,
        slots=parts,
        read_tasks=parts,
        leaving=choice.leaving,
        utilisation=need.utilisation,
        deviation=deviation,
        reason=choice.reason,
        state=replace(choice.state, leaving=choice.leaving if choice.action in ("offload", "hold") else ()),
    )


def _finish_leaving(settings: Elasticity, state: ElasticState, reading: ClusterReading, need: _Need) -> _Choice | None:
    """Give back those whose slots left at a boundary before, or keep them if they are needed after all."""
    present = tuple(one.id for one in reading.executors if one.id in state.leaving)
    wanted = state.wanted or 1
    if not present:
        return None
    if need.executors > wanted:
        back = _change(state, min(wanted + len(present), settings.max_executors), reading)
        return _Choice("keep", f"{need.tell(reading)}: executors that were to go are needed", back, present)
    if reading.wait.executors.intersection(present):
        return _Choice("hold", reading.wait.reason, state, present)
    reason = "; ".join(filter(None, ("their slots are at home elsewhere", reading.wait.reason)))
    return _Choice("release", reason, state, present)


def _choose_growth(settings: Elasticity, state: ElasticState, reading: ClusterReading, need: _Need) -> _Choice | None:
    if state.high_samples < settings.samples_up:
        return None
    if (left := state.grown_at + settings.cool_down_seconds - reading.now_seconds) > 0:
        return _Choice("stay", f"{need.tell(reading)}; cooling down, {left:.0f} s are left", state)
    if need.executors == need.by_memory and need.catching_up <= settings.upper:
        found = f"memory is more than {settings.memory:.0%} full"
    else:
        found = f"{need.tell(reading)}, more than {settings.upper:.0%}"
    grown = _change(state, need.executors, reading, grows=True)
    return _Choice("grow", f"{found}: {need.executors} executors, not {state.wanted}", grown)


def _choose_shrinking(
    settings: Elasticity, state: ElasticState, reading: ClusterReading, need: _Need, staying: list[Executor]
) -> _Choice | None:
    if state.low_samples < settings.samples_down:
        return None
    since = max(state.low_since, state.changed_at)
    if (left := since + settings.seconds_down - reading.now_seconds) > 0:
        reason = f"{need.tell(reading)}; {state.low_most} executors would do, for another {left:.0f} s all are kept"
        return _Choice("stay", reason, state)
    reason = f"{need.tell(reading)}, less than {settings.lower:.0%} for long: "
    reason += f"{state.low_most} executors, not {state.wanted}"
    leaving = _find_idlest(reading, staying, len(staying) - state.low_most)
    return _Choice("offload", reason, _change(state, state.low_most, reading), leaving)


def _tell_fit(settings: Elasticity, need: _Need, reading: ClusterReading, wanted: int) -> str:
    if need.unbounded > wanted >= settings.max_executors:
        return f"{need.tell(reading)}: {need.unbounded} executors would do, and there may be {wanted}"
    return f"{need.tell(reading)}, and {wanted} executors suit that"


def _cores_of(executors: tuple[Executor, ...]) -> int:
    """Return how many cores an executor has, in the middle: the next one will be like the others."""
    cores = sorted(max(1, executor.cores) for executor in executors) or [1]
    return cores[len(cores) // 2]


def _follow_cost(seconds_a_row: float, reading: ClusterReading) -> float:
    if reading.rows <= 0:
        return seconds_a_row
    seen = sum(seconds for _, seconds in sorted(reading.cpu_seconds.items())) / reading.rows
    return seen if not seconds_a_row else seconds_a_row + _NEW_WEIGHT * (seen - seconds_a_row)


def _find_need(settings: Elasticity, state: ElasticState, reading: ClusterReading, wanted: int, cores: float) -> _Need:
    """Return how many executors suit what comes, what waits and what is held, in one step from any number."""
    busy_cores = reading.offered_rows_per_second * state.seconds_a_row
    catching_up = busy_cores + reading.waiting_rows * state.seconds_a_row / settings.catch_up_seconds
    by_rows = max(_fit(settings, busy_cores / cores), _ceil(catching_up / (settings.upper * cores)), 1)
    memory = sorted(one.memory_bytes for one in reading.executors if one.memory_bytes > 0)
    by_memory, fits_in = 1, 1
    if memory:
        room = settings.memory * memory[len(memory) // 2]
        by_memory = max(1, _ceil(reading.held_bytes / room))
        fits_in = max(1, _ceil(reading.held_bytes / (_ROOM_TO_SHRINK * room)))
    utilisation, with_waiting = busy_cores / (wanted * cores), catching_up / (wanted * cores)
    is_high = utilisation > settings.upper + _ALMOST or with_waiting > settings.upper + _ALMOST
    least, most = settings.min_executors, settings.max_executors
    unbounded = max(by_rows if is_high else wanted, by_memory, least)
    return _Need(
        utilisation=utilisation,
        catching_up=with_waiting,
        executors=min(unbounded, most),
        unbounded=unbounded,
        by_memory=by_memory,
        to_shrink_to=min(max(by_rows, fits_in, least), most),
    )


def _fit(settings: Elasticity, busy_executors: float) -> int:
    """Return how many executors are near their target when so many are kept busy all the time."""
    exact = busy_executors / settings.target
    fewer = math.floor(exact)
    near = min(_NEAR_TARGET * settings.target, (settings.target + settings.upper) / 2)
    return fewer if fewer and busy_executors / fewer <= near else _ceil(exact)


def _ceil(number: float) -> int:
    return math.ceil(number - _ALMOST)


def _follow_samples(
    settings: Elasticity, state: ElasticState, reading: ClusterReading, need: _Need, wanted: int
) -> ElasticState:
    is_high = need.executors > wanted
    is_low = need.to_shrink_to < wanted and (need.catching_up < settings.lower or wanted > settings.max_executors)
    low_samples = state.low_samples + 1 if is_low else 0
    return replace(
        state,
        high_samples=state.high_samples + 1 if is_high else 0,
        low_samples=low_samples,
        low_since=state.low_since if state.low_samples else reading.now_seconds,
        low_needs=_follow_needs(settings, state, reading.now_seconds, low_samples, need.to_shrink_to) if is_low else (),
    )


def _follow_needs(
    settings: Elasticity, state: ElasticState, now_seconds: float, sample: int, needed: int
) -> tuple[tuple[float, int, int], ...]:
    """Return what the last low samples needed, as many and of as long as must be seen before executors go.

    Earlier ones do not count: the first is half of the load before, and would make the way down two steps.
    """
    kept = [
        one
        for one in (state.low_needs if state.low_samples else ())
        if one[2] > needed and (one[0] > now_seconds - settings.seconds_down or one[1] > sample - settings.samples_down)
    ]
    return (*kept, (now_seconds, sample, needed))


def _change(state: ElasticState, executors: int, reading: ClusterReading, *, grows: bool = False) -> ElasticState:
    return replace(
        state,
        wanted=executors,
        high_samples=0,
        low_samples=0,
        grown_at=reading.now_seconds if grows else state.grown_at,
        changed_at=reading.now_seconds,
        reconfigurations=state.reconfigurations + 1,
    )


def find_use(reading: ClusterReading, serving: Container[str], cores_per_executor: float | None = None) -> float | None:
    """Return the share of some executors' cores that what comes takes; None if no rows say what it costs."""
    cores = sum(cores_per_executor or max(1, one.cores) for one in reading.executors if one.id in serving)
    if reading.rows <= 0 or not cores:
        return None
    return reading.offered_rows_per_second * _follow_cost(0.0, reading) / cores


def find_deviation(
    cpu_seconds: Mapping[str, float],
    executors: Sequence[Executor],
    batch_seconds: float,
    cores_per_executor: float | None = None,
) -> float:
    """Return the standard deviation of what executors were busy with; who had nothing to do counts as 0."""
    if len(executors) < 2 or batch_seconds <= 0:
        return 0.0
    shares = [
        cpu_seconds.get(one.id, 0.0) / (batch_seconds * (cores_per_executor or max(1, one.cores))) for one in executors
    ]
    mean = math.fsum(shares) / len(shares)
    return math.sqrt(math.fsum((share - mean) ** 2 for share in shares) / len(shares))


def _find_idlest(reading: ClusterReading, staying: list[Executor], count: int) -> tuple[str, ...]:
    """Return the executors that go: those that did least for their cores, and of equals those that came last."""
    by_load = sorted(
        sorted(staying, key=lambda one: (len(one.id), one.id), reverse=True),
        key=lambda one: reading.cpu_seconds.get(one.id, 0.0) / max(1, one.cores),
    )
    return tuple(sorted(one.id for one in by_load[: max(0, count)]))
