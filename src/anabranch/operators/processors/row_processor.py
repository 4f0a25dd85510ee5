"""Run a processor that handles rows one by one."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from types import GeneratorType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import LATEST, PLACE, places_of
from anabranch.eventtime.timers import (
    TIMER_COLUMNS,
    TIMER_LIST,
    Timer,
    TimerDomain,
    Timers,
    from_us,
    watermark_from_us,
)
from anabranch.model import END_OF_TIME
from anabranch.model.frame_texts import describe_row
from anabranch.operators.keyed.keyed_state import align_by_key
from anabranch.operators.keyed.single_rows import ENGINE_COLUMNS, KeyedRows
from anabranch.operators.processors.checked_values import describe_value, make_check
from anabranch.operators.processors.declared_state import KeyState, changes_of
from anabranch.operators.processors.processor import Processor, Row, RowTime
from anabranch.operators.processors.processor_batch import (
    AFTER,
    ARRIVED,
    BEFORE,
    FAILURES,
    IS_LATE,
    STAGE,
    Outcome,
    ProcessorInput,
    build_column,
    complain,
    describe_key,
)
from anabranch.operators.processors.stored_keys import StoredKeys

MOST_TIMERS_WITHOUT_PROGRESS = 1_000_000
"""Timers of a key that go off one after the other, none later than those before: beyond it, it is a circle."""


HandledRow = tuple[int, int, bool, Row]
"""(stage, event time, whether it is late, the row)."""

_ROWS_AT_ONCE = 4096
_OBJECTS_A_COLLECTION = 100_000
_USUAL = (GeneratorType, list, tuple)
"""What methods usually return; others are looked at more closely, which takes longer."""


class RowRunner:
    """Hands rows and timers to a ``Processor``, key by key."""

    def __init__(self, processor: Processor, keys: Sequence[str], schema: Mapping[str, pl.DataType]) -> None:
        self._processor = processor
        self._keys = tuple(keys)
        self._schema = dict(schema)
        kind = type(processor)
        self._judges_late = kind.is_late is not Processor.is_late
        self._handles_late = kind.on_late is not Processor.on_late

    def find_late(self, batch: KeyedRows) -> NDArray[np.bool_]:
        """Say of each row whether it is late, as the processor sees it."""
        if not self._judges_late or batch.rows is None:
            return batch.late
        now, slot_watermark = from_us(batch.time.now_us), watermark_from_us(int(batch.time.slot_closed_us))
        watermarks = [watermark_from_us(us) for us in batch.touched.clocks.closed_us.tolist()]
        places, times_us = places_of(batch.rows).tolist(), batch.rows.get_column(LATEST).to_list()
        late = np.zeros(batch.rows.height, np.bool_)
        for number, row in enumerate(_as_dicts(batch.rows)):
            place = places[number]
            try:
                time = RowTime(from_us(times_us[number]), watermarks[place], slot_watermark, now)
                late[number] = bool(self._processor.is_late(row, time))
            except FAILURES as error:
                raise self._failed("is_late", batch, place, error, row) from error
        return late

    def run(self, given: ProcessorInput) -> Outcome:
        """Give every key its turn, in the order of their hashes."""
        batch = given.batch
        rows = given.rows
        if rows is not None and not self._handles_late:
            rows = rows.filter(~pl.col(IS_LATE))
        stored = StoredKeys(batch, self._processor.state_fields)
        output = _Output(self._keys, self._schema)
        calls = _Calls(self._processor, output)
        changed: dict[str, dict[int, Any]] = {
            name: {} for name in (*self._processor.state_fields, *TIMER_COLUMNS.values())
        }
        with _rare_collections():
            for place, handled in _give_turns(_group_by_key(rows), stored.places_with_due_timers()):
                state, timers = stored.state(place), stored.timers(place)
                try:
                    calls.begin(place, stored.key(place), state, timers)
                    self._take_turn(calls, handled, batch, place)
                    for field, kept in changes_of(state).items():
                        changed[field][place] = kept
                except FAILURES as error:
                    raise self._failed(calls.method, batch, place, error, calls.row) from error
                for domain, waiting in timers.changes().items():
                    changed[TIMER_COLUMNS[domain]][place] = waiting
        return Outcome(
            self._build_results(output, batch),
            {name: self._build_content(name, stored, values, batch) for name, values in changed.items()},
            _places_in(changed.values(), len(batch.touched)),
        )

    def _take_turn(self, calls: _Calls, rows: Iterable[HandledRow], batch: KeyedRows, place: int) -> None:
        """Handle the rows and timers of one key, in the order of event time wherever that is known."""
        clocks, now_us = batch.touched.clocks, batch.time.now_us
        closed_us, fire_us = int(clocks.closed_us[place]), int(clocks.fire_us[place])
        calls.fire("processing", now_us)
        waiting = iter(rows)
        current = next(waiting, None)
        while current is not None and current[0] == BEFORE:
            calls.fire("event", current[1])
            calls.on_time(current[3])
            current = next(waiting, None)
        calls.fire("event", closed_us)
        while current is not None and current[0] == ARRIVED:
            if current[2]:
                calls.on_late(current[3])
            else:
                calls.on_time(current[3])
            current = next(waiting, None)
        while current is not None and current[0] == AFTER:
            calls.fire("event", current[1])
            calls.on_time(current[3])
            current = next(waiting, None)
        if batch.is_forced[place]:
            # Only up to what is set by now: a timer that sets itself anew must not go on for ever.
            fire_us = max(closed_us, calls.last_event_timer_us())
        calls.fire("event", fire_us)
        while calls.fire("processing", now_us) and calls.fire("event", fire_us):
            pass

    def _build_results(self, output: _Output, batch: KeyedRows) -> pl.DataFrame:
        if not output.rows:
            return pl.DataFrame()
        columns = []
        for number, (name, dtype) in enumerate(self._schema.items()):
            values = [row[number] for row in output.rows]
            column = build_column(name, values, dtype)
            if column is None:
                raise self._misfit(name, dtype, values, output, batch)
            columns.append(column)
        return pl.DataFrame(columns)

    def _misfit(self, name: str, dtype: pl.DataType, values: list[Any], output: _Output, batch: KeyedRows) -> Exception:
        """Return the error about the first value that does not fit the declared output."""
        check = make_check(dtype)
        number, text = 0, f"values do not fit {dtype}"
        for number, value in enumerate(values):  # noqa: B007
            try:
                if value is not None:
                    check(value)
            except TypeError as error:
                text = str(error)
                break
        place, method = output.origins[number]
        key = describe_key(batch.touched.keys, self._keys, place)
        return complain(self._processor, method, key, f"output column {name!r}: {text}, as schema= says")

    def _build_content(self, name: str, stored: StoredKeys, values: dict[int, Any], batch: KeyedRows) -> pl.Series:
        fields = self._processor.state_fields
        dtype = fields[name].stored_type if name in fields else TIMER_LIST
        old = stored.column(name, dtype)
        if not values:
            return old
        column = build_column(name, list(values.values()), dtype)
        if column is None:
            place = next(p for p, value in values.items() if build_column(name, [value], dtype) is None)
            key = describe_key(batch.touched.keys, self._keys, place)
            text = f"{describe_value(values[place])} does not fit {dtype}"
            raise complain(self._processor, f"state.{name}", key, text)
        return align_by_key(column, np.fromiter(values, np.int64), len(batch.touched), dtype, old)

    def _failed(self, method: str, batch: KeyedRows, place: int, error: BaseException, row: Row | None) -> Exception:
        key = describe_key(batch.touched.keys, self._keys, place)
        frames = traceback.extract_tb(error.__traceback__)
        # The last line of the user's own method: what lies below it is ours or a library's.
        own = [frame for frame in frames if frame.name == method and frame.filename != __file__]
        where = f" (line {own[-1].lineno} of {own[-1].filename.rsplit('/', 1)[-1]})" if own else ""
        complaint = complain(self._processor, method, key, f"{type(error).__name__}: {error}{where}")
        if row is not None:
            complaint.add_note(f"with the row: {describe_row(row)}")
        return complaint


class _Calls:
    """Calls the methods of a processor for one key after the other, and remembers which it was."""

    def __init__(self, processor: Processor, output: _Output) -> None:
        self._processor = processor
        self._output = output
        self.method = ""
        self.row: Row | None = None
        """The row that is being handled; None for a timer."""

    def begin(self, place: int, key: Mapping[str, Any], state: KeyState, timers: Timers) -> None:
        self._place, self._key, self._state, self._timers = place, key, state, timers
        self._latest_us: dict[TimerDomain, int] = {"event": -END_OF_TIME, "processing": -END_OF_TIME}
        self._without_progress = 0

    def on_time(self, row: Row) -> None:
        self.method, self.row = "on_time", row
        self._output.add(self._processor.on_time(row, self._state, self._timers), self._key, self._place, "on_time")

    def on_late(self, row: Row) -> None:
        self.method, self.row = "on_late", row
        self._output.add(self._processor.on_late(row, self._state, self._timers), self._key, self._place, "on_late")

    def fire(self, domain: TimerDomain, limit_us: int) -> bool:
        """Let the timers go off that are set for the limit or before, also those that are set meanwhile."""
        any_fired = False
        while (due := self._timers.pop_due(domain, limit_us)) is not None:
            any_fired = True
            at_us, timer = due
            self.method, self.row = "on_timer", None
            self._count_timer(at_us, timer)
            emitted = self._processor.on_timer(timer, self._state, self._timers)
            self._output.add(emitted, self._key, self._place, "on_timer")
        return any_fired

    def _count_timer(self, at_us: int, timer: Timer) -> None:
        """Raise if timers go off again and again without getting any further."""
        latest_us = self._latest_us[timer.domain]
        self._without_progress = 0 if at_us > latest_us else self._without_progress + 1
        self._latest_us[timer.domain] = max(latest_us, at_us)
        if self._without_progress > MOST_TIMERS_WITHOUT_PROGRESS:
            msg = f"on_timer sets timers for {timer.time} or before, again and again; set them for later, or stop"
            raise RecursionError(msg)

    def last_event_timer_us(self) -> int:
        last_us = self._timers.last_us("event")
        return -END_OF_TIME if last_us is None else last_us


class _Output:
    """The rows that a processor emits, as tuples in the order of the declared columns."""

    def __init__(self, keys: tuple[str, ...], schema: Mapping[str, pl.DataType]) -> None:
        self._keys = keys
        self._names = tuple(schema)
        self._expected = set(schema)
        self._pick: Callable[[Row], tuple[Any, ...]] = (
            itemgetter(*self._names) if len(self._names) > 1 else lambda row: (row[self._names[0]],)
        )
        # What is emitted may be a list that goes on growing: it counts as it is now.
        self._checks = [
            (number, make_check(dtype)) for number, dtype in enumerate(schema.values()) if dtype.is_nested()
        ]
        self.rows: list[tuple[Any, ...]] = []
        self.origins: list[tuple[int, str]] = []
        """By row, the place of its key and the method that emitted it."""

    def add(self, emitted: Any, key: Mapping[str, Any], place: int, method: str) -> None:
        if emitted is None:
            return
        if type(emitted) not in _USUAL and (
            isinstance(emitted, Mapping | str | pl.DataFrame) or not isinstance(emitted, Iterable)
        ):
            msg = f"it returned {describe_value(emitted)}; return a list of dicts, or yield dicts, or return nothing"
            raise TypeError(msg)
        for row in emitted:
            if type(row) is not dict and not isinstance(row, Mapping):
                msg = f"it emitted {describe_value(row)}; output rows are dicts"
                raise TypeError(msg)
            whole = row if row.keys() == self._expected else self._complete(row, key)
            self.rows.append(self._copy(self._pick(whole)) if self._checks else self._pick(whole))
            self.origins.append((place, method))

    def _copy(self, picked: tuple[Any, ...]) -> tuple[Any, ...]:
        copied = list(picked)
        for number, check in self._checks:
            try:
                copied[number] = check(picked[number])
            except TypeError as error:
                msg = f"output column {self._names[number]!r}: {error}, as schema= says"
                raise TypeError(msg) from error
        return tuple(copied)

    def _complete(self, row: Row, key: Mapping[str, Any]) -> Row:
        whole = {name: key[name] for name in self._keys if name in self._expected} | dict(row)
        if whole.keys() != self._expected:
            missing = [name for name in self._names if name not in whole]
            strangers = [name for name in whole if name not in self._expected]
            wrong = [f"no {', '.join(missing)}"] if missing else []
            wrong += [f"{', '.join(map(str, strangers))} too many"] if strangers else []
            msg = f"an output row has {' and '.join(wrong)}; schema= says {', '.join(self._names)}"
            raise ValueError(msg)
        return whole


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for circles of objects less often: rows come and go by the million, and hardly any is in one."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], _OBJECTS_A_COLLECTION), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _as_dicts(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows as users know them."""
    rows = rows.drop(*ENGINE_COLUMNS, IS_LATE, STAGE, strict=False)
    names = rows.columns
    # Columns become Python values faster than rows do.
    for part in rows.iter_slices(_ROWS_AT_ONCE):
        for values in zip(*(column.to_list() for column in part.iter_columns()), strict=True):
            yield dict(zip(names, values, strict=True))


def _group_by_key(rows: pl.DataFrame | None) -> Iterator[tuple[int, list[HandledRow]]]:
    """Yield by key its rows, in the order in which they are handled."""
    if rows is None:
        return
    rows = rows.sort(PLACE, STAGE, maintain_order=True)
    numbers = (rows.get_column(name).to_list() for name in (PLACE, STAGE, LATEST, IS_LATE))
    for place, found in groupby(zip(*numbers, _as_dicts(rows), strict=True), key=itemgetter(0)):
        yield place, [row[1:] for row in found]


def _give_turns(
    groups: Iterator[tuple[int, list[HandledRow]]], due_places: Sequence[int]
) -> Iterator[tuple[int, list[HandledRow]]]:
    """Yield the keys that have rows or due timers, by place; rows become Python objects one key at a time."""
    due = iter(due_places)
    next_due = next(due, None)
    for place, rows in groups:
        while next_due is not None and next_due < place:
            yield next_due, []
            next_due = next(due, None)
        if next_due == place:
            next_due = next(due, None)
        yield place, rows
    if next_due is not None:
        yield next_due, []
        yield from ((place, []) for place in due)


def _places_in(changes: Iterable[Mapping[int, Any]], count: int) -> NDArray[np.bool_]:
    changed = np.zeros(count, np.bool_)
    for places in changes:
        changed[list(places)] = True
    return changed
