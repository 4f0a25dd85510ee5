"""How many rows the next batch may have, so that it is published within a target of seconds.

A batch is taken to cost a fixed time and a time a row. Both are fitted to the last batches, which are forgotten bit by
bit; what is kept of them is ten numbers, however long a flow runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from anabranch.model.progress import Admitted

START_ROWS = 10_000
"""Of the first batch, of which nothing is known."""
FEWEST_ROWS = 1_000
SMALL_ROWS = 30_000
"""Batches below this are hardly ever slow because of their rows; if they are, that shows at once."""
FLOOR_SHARE = 0.1
"""Rows may always take this part of the target, also where the rest of a batch takes longer than all of it."""
GROWTH = 2.0
"""A batch has at most so many times the rows of the largest one lately: what nobody has seen is not believed."""
_CAREFUL_GROWTH = 1.25
_KEPT = 0.85
"""What an earlier batch counts for beside the one after it; so the last six or seven are what counts."""
_FORGOTTEN_OF_ROWS = 0.05
"""What is forgotten of what rows take, by a batch that differs from others in rows: those that are alike say nothing of
it, and must not wash it away."""
_DIFFERENT = 0.2
"""A batch that has so much more or fewer rows than others, as a part of theirs, does differ."""
_TOLD_APART, _TOLD_APART_IN_SMALL = 2.0, 4.0
"""What a row adds must be so many times its standard error, or it may as well be chance. In small batches more so: that
these are slow because of their rows is hard to believe."""
_WEIGHT_OF_OVERHEAD = 0.15
"""What it counts for, beside a batch, that without rows only the overhead would be left.

It decides where batches are all alike and say nothing of rows. The time a row is then rather too high than too low, and
so a step is rather too short than too long: that is why sizes come to rest instead of swinging.
"""
_LEAST_SHARE_OF_ROWS = 0.05
"""Of what a batch takes beyond its overhead, rows take at least so much."""
_ODD = 3.0
"""So many mean deviations off, a batch counts as odd: once, as if it were off by that and no more."""
_LEAST_DEVIATION = 0.05
_MOST_DEVIATION = 0.5
_ROOM = 0.5
"""Two batches that took less than this part of the target are enough to grow, whatever was learnt before."""
_SAFE = 0.8
"""They let batches grow so far that, were nothing fixed, they would take this part of the target. Where nobody
knows what rows take, batches that take less than it in the mean grow, too."""
_STILL = 0.04
"""A limit that would change by less stays as it is."""


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """What a batch had and took."""

    rows: int
    seconds: float
    """From its trigger until it was published."""
    overhead_seconds: float = 0.0
    """Of them, what does not depend on rows for certain: the wait after the trigger, and the commit."""
    waiting_rows: int | None = None
    """Rows that sources had besides, when the batch was planned; None if they cannot tell."""
    offered_rows_per_second: float | None = None
    """That came since the batch before was planned."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """What batches take, by their rows: means and sums of squares of the last ones, newer ones counting more."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    overhead_seconds: float = 0.0
    rows_squared: float = 0.0
    """Sum of the squared differences from the mean."""
    rows_by_seconds: float = 0.0
    deviation: float = 0.0
    """Mean difference between what batches took and what was expected, as a part of it."""
    odd: BatchTiming | None = None
    """The last batch, if it was far off: if the next one is, too, they are no exceptions."""

    @property
    def seconds_a_row(self) -> float:
        """What a row more adds."""
        if self.rows <= 0:
            return 0.0
        weight = _WEIGHT_OF_OVERHEAD * self.weight / (_WEIGHT_OF_OVERHEAD + self.weight)
        known = self.rows_squared + weight * self.rows**2
        found = (self.rows_by_seconds + weight * self.rows**2 * self._steepest) / known
        return min(max(found, _LEAST_SHARE_OF_ROWS * self._steepest), self._steepest)

    @property
    def _steepest(self) -> float:
        """What a row adds if nothing but the overhead is fixed."""
        return max(self.seconds - self.overhead_seconds, 1e-3 * self.seconds, 1e-9) / self.rows

    @property
    def _error(self) -> float:
        """The standard error of what a row seems to add."""
        spread = max(self.deviation, _LEAST_DEVIATION) * self.seconds
        return spread / math.sqrt(self.rows_squared) if self.rows_squared > 0 else math.inf

    def tells_rows(self, times: float) -> bool:
        """Say whether what a row adds is so many times its error: only batches that differ in rows show it."""
        return self.rows_squared > 0 and self.rows_by_seconds / self.rows_squared >= times * self._error

    def find_rows(self, seconds: float) -> float:
        """Return the rows with which a batch takes so long; on the safe side where they are more than those before.

        The less batches differed in rows, the more may be chance in what a row seems to add.
        """
        more_seconds = seconds - self.seconds
        a_row = self.seconds_a_row
        if more_seconds > 0:
            a_row = min(a_row + self._error, self._steepest)
        return self.rows + more_seconds / a_row

    @property
    def fixed_seconds(self) -> float:
        """What a batch takes without rows."""
        return self.seconds - self.seconds_a_row * self.rows

    def expect(self, rows: float) -> float:
        """Return the seconds that a batch of so many rows takes in the mean."""
        return self.fixed_seconds + self.seconds_a_row * rows

    def learn(self, seen: BatchTiming) -> CostModel:
        """Return the model with one more batch.

        One that is far off counts as less far off. If a second one is off to the same side, everything has changed:
        what was known before is forgotten, and the two are the beginning.
        """
        if self.weight == 0:
            return self._add(seen, 0.0)
        expected = max(self.expect(seen.rows), 1e-9)
        off = seen.seconds / expected - 1
        widest = _ODD * max(self.deviation, _LEAST_DEVIATION)
        if self.weight < 2 or abs(off) <= widest:
            return self._add(seen, min(abs(off), _MOST_DEVIATION))
        if self.odd is not None and (self.odd.seconds > self.expect(self.odd.rows)) == (off > 0):
            return self._begin_anew(self.odd, seen)
        bounded = expected * (1 + (widest if off > 0 else -min(widest, 0.9)))
        counted = replace(seen, seconds=bounded)
        return replace(self._add(counted, min(widest, _MOST_DEVIATION)), odd=seen)

    def rescale(self, share: float) -> CostModel:
        """Return the model when a row takes this part of what it took; what is fixed takes what it took."""
        saved_seconds = (1 - share) * self.seconds_a_row * self.rows
        return replace(
            self, seconds=self.seconds - saved_seconds, rows_by_seconds=share * self.rows_by_seconds, odd=None
        )

    def _begin_anew(self, first: BatchTiming, second: BatchTiming) -> CostModel:
        """Return the model of two batches; rows are taken to have got dearer, or cheaper, by as much as the rest."""
        found = CostModel(deviation=self.deviation)._add(first, self.deviation)._add(second, self.deviation)
        if found.rows_squared > self.rows_squared:
            return found
        factor = found.seconds / max(self.expect(found.rows), 1e-9)
        return replace(found, rows_squared=self.rows_squared, rows_by_seconds=factor * self.rows_by_seconds)

    def _add(self, seen: BatchTiming, off: float) -> CostModel:
        weight = _KEPT * self.weight + 1
        share = 1 / weight
        more_rows = seen.rows - self.rows
        kept = 1 - _FORGOTTEN_OF_ROWS * min(1.0, (more_rows / max(_DIFFERENT * self.rows, 1.0)) ** 2)
        rows = self.rows + share * more_rows
        seconds = self.seconds + share * (seen.seconds - self.seconds)
        return CostModel(
            weight=weight,
            rows=rows,
            seconds=seconds,
            overhead_seconds=self.overhead_seconds + share * (seen.overhead_seconds - self.overhead_seconds),
            rows_squared=kept * self.rows_squared + more_rows * (seen.rows - rows),
            rows_by_seconds=kept * self.rows_by_seconds + more_rows * (seen.seconds - seconds),
            deviation=self.deviation + share * (off - self.deviation),
        )


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """What is known of a run's batches, and what the next one may have."""

    admitted: Admitted
    model: CostModel = CostModel()
    most_rows: float = 0.0
    """Of the largest batch, lately."""
    last: BatchTiming | None = None
    """The last batch that had rows."""


def begin_admission(target_seconds: float) -> AdmissionState:
    """Return the state before the first batch of a run."""
    return AdmissionState(Admitted(START_ROWS, target_seconds, None, "no batch has been measured yet"))


def admit(state: AdmissionState, seen: BatchTiming) -> AdmissionState:
    """Return what the next batch may have, now that one more was seen.

    The size for which the target would just be held is aimed at from below: by what batches differ from each other,
    less. It is gone to at once if it is smaller, and half of the way if it is larger. Where rows cannot be told
    from chance, as at first, small batches double also beyond the target: a flow whose empty batches take longer would
    never get anywhere else. Batches also double, or nearly, while they take less than half of the target.
    """
    target = state.admitted.target_seconds
    model = state.model.learn(seen)
    most_rows = max(float(seen.rows), _KEPT * state.most_rows)
    before = state.admitted.rows
    if model.rows <= 0:
        # Only empty batches so far: they say nothing of rows.
        told = f"a batch without rows takes {model.seconds:.2f} s"
        return replace(state, admitted=Admitted(before, target, model.seconds, told), model=model)
    aim = target / (1 + 2 * min(max(model.deviation, _LEAST_DEVIATION), _MOST_DEVIATION))
    floor = max(float(FEWEST_ROWS), FLOOR_SHARE * target / model.seconds_a_row)
    ceiling = max(GROWTH * most_rows, float(before))
    wanted = model.find_rows(aim)
    room = _find_room(target, state.last, seen)
    sought = max(wanted, floor, room, _find_trial(target, model, seen))
    rows = max(_go_towards(min(sought, ceiling), before), round(min(room, ceiling)))
    reason = _tell(model, seen, rows, target=target, is_floor=wanted < floor, is_ceiling=sought >= ceiling)
    return AdmissionState(
        Admitted(rows, target, model.expect(rows), reason),
        model,
        most_rows,
        seen if seen.rows else state.last,
    )


def share_out(state: AdmissionState, before: int, now: int) -> AdmissionState:
    """Return the state when so many executors share the rows of a batch, and before it was so many.

    It would be found out by and by, as rows that take a quarter of the time; meanwhile rows wait that could be worked
    off, or batches take four times as long as they may.
    """
    return state if before == now else replace(state, model=state.model.rescale(before / now), last=None)


def _find_room(target: float, last: BatchTiming | None, seen: BatchTiming) -> float:
    """Return how far batches may grow without asking what was learnt; 0 if the last two were not quick.

    Twice the rows take twice the time at most. What was learnt may be of another time: of a start that took long, of a
    machine that was busy.
    """
    if last is None or max(last.seconds, seen.seconds) >= _ROOM * target:
        return 0.0
    return min(one.rows * _SAFE * target / max(one.seconds, 1e-9) for one in (last, seen))


def _find_trial(target: float, model: CostModel, seen: BatchTiming) -> float:
    """Return how many rows to try where nobody can tell what rows take, else 0: without a difference it never shows.

    Small batches double whatever they take, as it is not their rows that take it; somewhat larger ones grow carefully,
    unless they take very long, and do not shrink. All others grow only where the target leaves room: a flow that fills
    it, and whose rows are lost in the noise, would grow for as long as that hides what they take.
    """
    if seen.rows < SMALL_ROWS:
        return 0.0 if model.tells_rows(_TOLD_APART_IN_SMALL) else GROWTH * seen.rows
    if model.tells_rows(_TOLD_APART):
        return 0.0
    if seen.rows < 2 * SMALL_ROWS:
        return _CAREFUL_GROWTH * seen.rows if seen.seconds <= 2 * target else float(seen.rows)
    return _CAREFUL_GROWTH * seen.rows if model.seconds <= _SAFE * target else 0.0


def _go_towards(sought: float, before: int) -> int:
    if abs(sought - before) <= _STILL * before:
        return before
    is_near = before < sought < GROWTH * before
    return max(FEWEST_ROWS, round((before + sought) / 2 if is_near else sought))


def measure_offered(rows: int, waiting: int | None, waiting_before: int | None, seconds: float) -> float | None:
    """Return the rows that came in a second, between the plans of two batches; None if sources cannot tell.

    They are those that the later batch has and leaves, without those that the earlier one left.
    """
    if waiting is None or waiting_before is None or seconds <= 0:
        return None
    return max(0.0, (rows + waiting - waiting_before) / seconds)


def _tell(model: CostModel, seen: BatchTiming, rows: int, *, target: float, is_floor: bool, is_ceiling: bool) -> str:
    found = f"a batch takes {model.fixed_seconds:.2f} s and {1e6 * model.seconds_a_row:.3g} µs a row"
    if is_floor:
        return f"{found}: hardly any rows fit into {target:g} s, so as few as are worth a batch"
    if is_ceiling:
        found += f"; more may fit, and at most {GROWTH:g} times the largest batch lately is tried"
    offered, fits = seen.offered_rows_per_second, rows / max(model.expect(rows), 1e-9)
    if offered is not None and seen.waiting_rows and offered > fits:
        return f"{found}; {offered:,.0f} rows/s come and {fits:,.0f} fit: what waits at the sources grows"
    return found
