"""What processors can count on, and what they are told when they are wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model import END_OF_TIME, HASH, Clock, OperatorTime, ProcessSpec
from anabranch.operators.compaction import MOST_RUNS
from anabranch.operators.kernels import make_kernel
from anabranch.operators.processors.declared_state import listed, mapped, value
from anabranch.operators.processors.processor import FrameProcessor, Processor
from anabranch.state.slots import RunsOfSlot
from unit.operators.many_slots import RunsInMemory
from unit.operators.memory_state import MemoryState
from unit.operators.streams import EPOCH, SCHEMA, SECOND_US, Row, to_frame

OUTPUT: dict[str, pl.DataType] = {"key": pl.Int64(), "text": pl.String()}
KEY_CLOCK = Clock("key")


class Slot:
    """One slot that runs a processor, batch by batch."""

    def __init__(self, processor: Any, clock: Clock = KEY_CLOCK, ordered: bool = False, output: Any = None) -> None:
        self.kernel = make_kernel(ProcessSpec(("key",), processor, SCHEMA, output or OUTPUT, "ts", clock, ordered))
        self.state = MemoryState()
        self.batches = 0

    def run(self, *rows: Row, now_us: int = 0, **time: Any) -> list[str]:
        """Return the texts that a batch emits."""
        frame = self.advance(*rows, now_us=now_us, **time).frame
        return frame["text"].to_list() if frame.height else []

    def advance(self, *rows: Row, now_us: int = 0, **time: Any) -> Any:
        at = OperatorTime(self.batches, now_us=now_us, **time)
        prepared = self.kernel.prepare(to_frame(list(enumerate(rows))), at).frame
        received = [prepared.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))]
        self.batches += 1
        return self.kernel.advance(received if rows else [], False, self.state, at)


def seconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(seconds=1)


class Alarm(Processor):
    """Sets what its row says, and tells what goes off."""

    def on_time(self, row: Any, state: Any, timers: Any) -> None:
        timers.at(row["ts"] + timedelta(seconds=row["whole"]), tag=str(row["whole"]))

    def on_timer(self, timer: Any, state: Any, timers: Any) -> Any:
        yield {"text": f"{timer.key['key']}@{seconds(timer.time)}:{timer.tag}"}


def test_timers_go_off_by_time_and_tag_once_their_keys_watermark_is_there() -> None:
    slot = Slot(Alarm())
    assert slot.run(Row(1, 10, 5), Row(1, 10, 3), Row(1, 11, 2), Row(2, 10, 1)) == []
    assert slot.run(Row(1, 13, 0)) == ["1@13:0", "1@13:2", "1@13:3"]
    assert slot.run(Row(1, 30, 9)) == ["1@15:5"]
    assert slot.run(fire_us=END_OF_TIME) == ["1@39:9", "2@11:1"]
    assert slot.run(fire_us=END_OF_TIME) == []


def test_a_timer_for_a_time_that_has_passed_goes_off_in_the_same_batch() -> None:
    slot = Slot(Alarm())
    assert slot.run(Row(1, 10, -100)) == ["1@-90:-100"]


def test_a_timer_that_sets_itself_anew_does_not_go_on_for_ever_when_the_flow_drains() -> None:
    class EverySecond(Alarm):
        def on_timer(self, timer: Any, state: Any, timers: Any) -> Any:
            timers.at(timer.time + timedelta(seconds=1))
            yield from super().on_timer(timer, state, timers)

    slot = Slot(EverySecond())
    assert slot.run(Row(1, 10, 2)) == []
    assert slot.run(Row(1, 15, 100)) == ["1@12:2", "1@13:", "1@14:", "1@15:"]
    assert len(slot.run(fire_us=END_OF_TIME)) == 101


def test_a_timer_that_gets_no_further_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Alarm):
        def on_timer(self, timer: Any, state: Any, timers: Any) -> Any:
            timers.at(timer.time)
            return ()

    monkeypatch.setattr("anabranch.operators.processors.row_processor.MOST_TIMERS_WITHOUT_PROGRESS", 100)
    with pytest.raises(FlowError, match=r"Stuck: on_timer for key=1: .*again and again"):
        Slot(Stuck()).run(Row(1, 10, 0))


def test_processing_time_timers_go_off_by_the_wall_clock_and_ask_for_a_batch() -> None:
    class Reminder(Alarm):
        def on_time(self, row: Any, state: Any, timers: Any) -> None:
            timers.after_processing("2s", tag="soon")
            timers.at_processing(datetime(1970, 1, 1, 2, tzinfo=UTC), tag="at two")

    slot = Slot(Reminder())
    assert slot.advance(Row(1, 10), now_us=SECOND_US).wake_us == 3 * SECOND_US
    assert slot.run(now_us=2 * SECOND_US) == []
    fired = slot.advance(now_us=4 * SECOND_US)
    assert fired.frame["text"].to_list() == ["1@3:soon"]
    assert fired.wake_us == 7200 * SECOND_US


def test_a_silent_keys_timers_go_off_once_and_it_is_let_go_until_it_speaks() -> None:
    class Again(Alarm):
        def on_timer(self, timer: Any, state: Any, timers: Any) -> Any:
            timers.at(timer.time + timedelta(seconds=50))
            yield from super().on_timer(timer, state, timers)

    slot = Slot(Again(), Clock("key", idle_us=10 * SECOND_US))
    assert slot.advance(Row(1, 10, 5), now_us=0).wake_us == 10 * SECOND_US
    assert slot.run(now_us=5 * SECOND_US) == []
    assert slot.run(now_us=15 * SECOND_US) == ["1@15:5"]
    assert slot.advance(now_us=40 * SECOND_US).wake_us is None
    # It is not late though timers beyond it went off: only rows move a key's time.
    assert slot.advance(Row(1, 12, 900), now_us=50 * SECOND_US).late_rows == 0
    assert slot.run(now_us=65 * SECOND_US) == ["1@65:", "1@115:", "1@165:"] + [
        f"1@{at}:" for at in range(215, 912, 50)
    ] + ["1@912:900"]


def test_rows_of_a_key_come_by_time_then_in_the_order_in_which_they_came() -> None:
    class Teller(Processor):
        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            return [{"text": f"{seconds(row['ts'])}:{row['whole']}"}]

    assert Slot(Teller()).run(Row(1, 5, 1), Row(1, 3, 2), Row(1, 5, 0), Row(1, 4, 9)) == ["3:2", "4:9", "5:1", "5:0"]


def test_in_order_rows_and_timers_take_turns_by_event_time() -> None:
    class Both(Alarm):
        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            super().on_time(row, state, timers)
            yield {"text": f"row {seconds(row['ts'])}"}

    slot = Slot(Both(), Clock("key", 5 * SECOND_US), ordered=True)
    assert slot.run(Row(1, 12, 2), Row(1, 10, 3)) == []
    assert slot.run(Row(1, 11, 1), Row(1, 20, 0)) == ["row 10", "row 11", "1@12:1", "row 12", "1@13:3", "1@14:2"]


def test_is_late_may_be_decided_by_the_processor() -> None:
    class Lenient(Processor):
        def is_late(self, row: Any, time: Any) -> bool:
            assert time.now == EPOCH
            return super().is_late(row, time) and time.watermark - time.event_time > timedelta(seconds=10)

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            return [{"text": f"on time {seconds(row['ts'])}"}]

        def on_late(self, row: Any, state: Any, timers: Any) -> Any:
            return [{"text": f"late {seconds(row['ts'])}"}]

    slot = Slot(Lenient())
    slot.run(Row(1, 100))
    fired = slot.advance(Row(1, 95), Row(1, 80))
    assert fired.frame["text"].to_list() == ["late 80", "on time 95"]
    assert fired.late_rows == 1


def test_late_rows_are_counted_though_nobody_handles_them() -> None:
    slot = Slot(Alarm())
    slot.run(Row(1, 100, 0))
    fired = slot.advance(Row(1, 95, 0), Row(1, 101, 50), slot_closed_us=102 * SECOND_US)
    assert (fired.late_rows, fired.slot_late_rows, fired.frame.height) == (1, 2, 0)


def test_a_key_whose_state_is_back_to_its_defaults_is_forgotten() -> None:
    class Toggle(Processor):
        on = value(pl.Boolean(), default=False)
        names = listed(pl.String())

        def on_time(self, row: Any, state: Any, timers: Any) -> None:
            state.on = not state.on
            if state.on:
                state.names.append("x")
            else:
                state.names.clear()

    slot = Slot(Toggle(), Clock())
    slot.run(Row(1, 10))
    assert slot.kernel.values(slot.kernel.stored(slot.state.live(), 0)).to_dicts() == [
        {"key": 1, "on": True, "names": ["x"], "event_timers": 0, "processing_timers": 0}
    ]
    slot.run(Row(1, 11))
    assert slot.kernel.stored(slot.state.live(), 0).is_empty()


def failing(body: Any) -> Processor:
    class Failing(Processor):
        small = value(pl.Int8(), default=0)
        names = listed(pl.String())
        totals = mapped(pl.String(), pl.Float64())

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            return body(state, timers)

    return Failing()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda s, t: s.other, r"state\.other is not declared; declared are small, names, totals"),
        (lambda s, t: setattr(s, "small", "x"), r"state\.small: 'x' \(str\) does not fit Int8"),
        (lambda s, t: setattr(s, "small", 300), r"state\.small: 300 \(int\) does not fit Int8"),
        (lambda s, t: s.names.append(1), r"state\.names: 1 \(int\) does not fit String"),
        (lambda s, t: s.totals.update(a="b"), r"state\.totals: 'b' \(str\) does not fit Float64"),
        (lambda s, t: {"text": "x"}, "return a list of dicts"),
        (lambda s, t: ["x"], "output rows are dicts"),
        (lambda s, t: [{"text": 1}], r"output column 'text': 1 \(int\) does not fit String"),
        (lambda s, t: [{}], "an output row has no text; schema= says key, text"),
        (lambda s, t: [{"text": "x", "more": 1}], "more too many"),
        (lambda s, t: t.at(5), "a time is a datetime, got int"),
        (lambda s, t: 1 // 0, "ZeroDivisionError"),
        (lambda s, t: pl.Series([Decimal("NaN")]), "PanicException"),
    ],
)
def test_errors_name_the_processor_its_method_and_the_key(body: Any, words: str) -> None:
    with pytest.raises(FlowError, match=f"processor Failing: on_time for key=3: .*{words}") as caught:
        Slot(failing(body)).run(Row(3, 10))
    assert "\n" not in str(caught.value)


def frames(body: Any) -> FrameProcessor:
    class Frames(FrameProcessor):
        count = value(pl.Int64(), default=0)

        def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: Any) -> Any:
            return body(frame, state, time)

    return Frames()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda f, s, t: f, "it returned DataFrame"),
        (lambda f, s, t: (f.select("key"), None), "the output has no column text"),
        (
            lambda f, s, t: (f.select("key", text=1), None),
            "the output has text as Int32; as schema= says, it is String",
        ),
        (lambda f, s, t: (None, s.drop("count")), "the new state has no column count"),
        (lambda f, s, t: (None, s.with_columns(count=pl.lit("x"))), "count as String"),
        (lambda f, s, t: (None, pl.concat([s, s])), "several rows for one key"),
        (lambda f, s, t: (None, s.with_columns(key=pl.col("key") + 1)), "the key key=4"),
        (lambda f, s, t: (None, None, s.select("key")), "the timers have no column at"),
        (lambda f, s, t: (None, None, s.select("key", at=5)), "give a Datetime"),
        (lambda f, s, t: (None, None, s.select("key", at=pl.lit(EPOCH), domain=pl.lit("x"))), "domain is 'x'"),
        (lambda f, s, t: f.select("nothing"), "ColumnNotFoundError"),
        (lambda f, s, t: pl.Series([Decimal("NaN")]), "PanicException"),
    ],
)
def test_what_frames_must_be_is_said(body: Any, words: str) -> None:
    with pytest.raises(FlowError, match=f"processor Frames: process: .*{words}") as caught:
        Slot(frames(body)).run(Row(3, 10))
    assert "\n" not in str(caught.value)


def test_frames_have_lateness_and_watermark_and_every_key_has_state() -> None:
    seen = []

    def body(frame: pl.DataFrame, state: pl.DataFrame, time: Any) -> Any:
        seen.append((frame.select("key", "whole", "late", "watermark").rows(), state.rows(), time.timers.rows()))
        after = state.with_columns(count=pl.col("count") + 5)
        timers = after.head(1).select("key", at=EPOCH + timedelta(seconds=12), tag=pl.lit("t"))
        return None, after, timers if frame["whole"].sum() == 3 else None

    slot = Slot(frames(body))
    slot.run(Row(1, 10, 1), Row(2, 9, 2))
    slot.run(Row(1, 5, 3))
    assert seen[0] == ([(2, 2, False, None), (1, 1, False, None)], [(1, 0), (2, 0)], [])
    ten = EPOCH + timedelta(seconds=10)
    assert seen[1] == ([(1, 3, True, ten)], [(1, 5)], [])
    slot.run(Row(1, 20, 4))
    assert seen[2][2] == [(1, EPOCH + timedelta(seconds=12), "t", "event")]


def test_frames_cancel_timers() -> None:
    def body(frame: pl.DataFrame, state: pl.DataFrame, time: Any) -> Any:
        at = pl.lit(EPOCH + timedelta(seconds=50)).dt.cast_time_unit("us")
        return time.timers.select("key", text="tag"), None, frame.select("key", at=at, cancel=pl.col("whole") == 0)

    slot = Slot(frames(body))
    slot.run(Row(1, 10, 1), Row(2, 10, 1))
    slot.run(Row(1, 11, 0))
    fired = slot.advance(fire_us=END_OF_TIME)
    assert fired.frame["key"].to_list() == [2]


@pytest.mark.parametrize(
    ("processor", "output", "words"),
    [
        (Alarm, OUTPUT, r"give an object, Alarm\(\)"),
        (dict, OUTPUT, "dict is no processor"),
        (Alarm(), {}, "say which columns it emits"),
        (Alarm(), {"key": pl.String()}, "the key 'key' is String; it is Int64"),
    ],
)
def test_what_is_no_processor_is_refused(processor: Any, output: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_kernel(ProcessSpec(("key",), processor, SCHEMA, output, "ts")).output_schema(SCHEMA)


def test_a_field_with_the_name_of_a_key_is_refused() -> None:
    class Clash(Processor):
        key = value(pl.Int64())

    with pytest.raises(FlowError, match="'key' has the name of a key column"):
        make_kernel(ProcessSpec(("key",), Clash(), SCHEMA, OUTPUT, "ts")).output_schema(SCHEMA)


class Before(Processor):
    rows = value(pl.Int64(), default=0)

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        state.rows += 1
        yield {"text": str(state.rows)}


class After(Before):
    names = listed(pl.String())
    best = value(pl.Int64(), default=-1)

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        yield from super().on_time(row, state, timers)
        state.best = max(state.best, row["whole"])
        state.names.append(row["name"])
        yield {"text": f"{state.best} {len(state.names)}"}


def test_a_field_that_was_added_has_its_default_in_every_run_that_is_older() -> None:
    files: Any = RunsInMemory()
    runs: tuple[Any, ...] = ()
    emitted: dict[int, list[str]] = {}
    for batch in range(30):
        processor = Before() if batch < 12 else After()
        kernel = make_kernel(ProcessSpec(("key",), processor, SCHEMA, OUTPUT, "ts", KEY_CLOCK))
        state, time = RunsOfSlot(runs, files, files), OperatorTime(batch)
        rows = [(0, Row(batch % 5, batch, batch))]
        prepared = kernel.prepare(to_frame(rows), time).frame
        fired = kernel.advance([prepared.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))], False, state, time)
        runs = state.runs()
        emitted.setdefault(batch % 5, []).extend(fired.frame["text"].to_list())
    assert len(runs) <= MOST_RUNS
    assert emitted[0] == ["1", "2", "3", "4", "15 1", "5", "20 2", "6", "25 3"]
    assert emitted[4] == ["1", "2", "3", "14 1", "4", "19 2", "5", "24 3", "6", "29 4"]
    found = kernel.values(kernel.stored([files.read(ref) for ref in runs], 0)).sort("key")
    assert found["best"].to_list() == [25, 26, 27, 28, 29]
