"""Watermarks of a flow: whoever is silent or far behind holds nobody up, and nothing takes a watermark back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from anabranch.eventtime.medians import TimeTally
from anabranch.eventtime.watermarks import FlowTime, PartitionTime, SeenTimes, WatermarkRules
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Clock, OperatorTime
from property_tests import tries

NODE, OTHER = 3, 7
SIZE_US = 10
PARTITIONED = Clock("partition", delay_us=2)


def end_of_window(_: int, latest_us: int) -> int:
    return latest_us // SIZE_US * SIZE_US + SIZE_US


def rules(clock: Clock, other: Clock | None = None) -> WatermarkRules:
    if other is None:
        return WatermarkRules({NODE: clock}, end_of_window)
    return WatermarkRules({NODE: clock, OTHER: other}, end_of_window, ((NODE, OTHER),))


def saw(**partitions: int) -> SeenTimes:
    return SeenTimes({NODE: max(partitions.values())}, {NODE: partitions}) if partitions else SeenTimes()


def watermark(time: FlowTime, node: int = NODE) -> int:
    return time.current.get(node, BEGINNING_OF_TIME)


def test_slowest_partition_counts_and_the_fastest_does_not() -> None:
    time = FlowTime().advanced(saw(north=100, south=40), rules(PARTITIONED), now_us=0)
    assert watermark(time) == 38
    assert time.latest == {NODE: 100}


def test_partition_counts_from_its_first_row_and_takes_nothing_back() -> None:
    time = FlowTime().advanced(saw(north=100), rules(PARTITIONED), now_us=0)
    time = time.advanced(saw(north=110, south=40), rules(PARTITIONED), now_us=1)
    assert watermark(time) == 98
    time = time.advanced(saw(north=200, south=90), rules(PARTITIONED), now_us=2)
    assert watermark(time) == 98
    assert watermark(time.advanced(saw(south=120), rules(PARTITIONED), now_us=3)) == 118


def test_what_has_fired_is_up_to_the_watermark_that_a_batch_left_or_began_with() -> None:
    waiting = time = FlowTime()
    for latest_us in (20, 50):
        time = time.advanced(saw(north=latest_us), rules(PARTITIONED), now_us=0, fires_at_once=True)
        waiting = waiting.advanced(saw(north=latest_us), rules(PARTITIONED), now_us=0)
    assert time.current == waiting.current == {NODE: 48}
    assert (time.previous, waiting.previous) == ({NODE: 48}, {NODE: 18})
    for lagging in (True, False):
        at_once = time.operator_time(2, (NODE,), lagging=lagging, draining=False, now_us=0)
        assert at_once == OperatorTime(2, closed_us=48, fire_us=48, fired_us=48)
        # Who had to wait goes on: what is between is fired first.
        later = waiting.operator_time(2, (NODE,), lagging=lagging, draining=False, now_us=0)
        assert later == OperatorTime(2, closed_us=18 if lagging else 48, fire_us=48, fired_us=18)


def test_silent_partition_holds_nobody_up() -> None:
    clock = Clock("partition", delay_us=2, idle_us=50)
    time = FlowTime().advanced(saw(north=100, south=40), rules(clock), now_us=0)
    time = time.advanced(saw(north=200), rules(clock), now_us=49)
    assert watermark(time) == 38
    time = time.advanced(saw(), rules(clock), now_us=50)
    assert watermark(time) == 198
    assert time.partitions[NODE] == {"north": PartitionTime(200, 49)}


def test_partition_that_speaks_again_counts_again() -> None:
    clock = Clock("partition", delay_us=2, idle_us=50)
    time = FlowTime().advanced(saw(north=100, south=40), rules(clock), now_us=0)
    time = time.advanced(saw(north=200), rules(clock), now_us=60)
    time = time.advanced(saw(north=300, south=210), rules(clock), now_us=70)
    assert watermark(time) == 208


def test_what_is_open_closes_when_everybody_is_silent() -> None:
    for clock in (Clock("partition", delay_us=2, idle_us=50), Clock("flow", delay_us=2, idle_us=50)):
        time = FlowTime().advanced(saw(north=104, south=41), rules(clock), now_us=0)
        time = time.advanced(saw(), rules(clock), now_us=50)
        assert watermark(time) == 110
        assert time.operator_time(2, (NODE,), lagging=False, draining=False, now_us=0).fire_us == 110
        assert watermark(time.advanced(saw(), rules(clock), now_us=500)) == 110
        assert watermark(time.advanced(saw(north=130), rules(clock), now_us=500)) == 128


def test_silence_counts_while_the_flow_listens_only() -> None:
    clock = Clock("flow", idle_us=50)
    time = FlowTime().advanced(saw(north=104), rules(clock), now_us=0)
    restarted = time.advanced(saw(), rules(clock), now_us=1_000, since_us=990)
    assert watermark(restarted) == 104
    assert restarted.wake_us(rules(clock), now_us=1_000, since_us=990) == 1_040


def test_flow_wakes_when_the_first_of_those_that_count_may_be_silent() -> None:
    clock = Clock("partition", idle_us=50)
    time = FlowTime().advanced(saw(north=100, south=40), rules(clock), now_us=0)
    time = time.advanced(saw(north=200), rules(clock), now_us=30)
    assert time.wake_us(rules(clock), now_us=30) == 50
    time = time.advanced(saw(), rules(clock), now_us=50)
    assert time.wake_us(rules(clock), now_us=50) == 80
    time = time.advanced(saw(), rules(clock), now_us=80)
    assert time.wake_us(rules(clock), now_us=80) is None


def test_clock_without_silence_never_wakes_the_flow() -> None:
    time = FlowTime().advanced(saw(north=100), rules(PARTITIONED), now_us=0)
    assert time.wake_us(rules(PARTITIONED), now_us=0) is None


def test_silent_source_goes_along_with_the_one_beside_it() -> None:
    flow = rules(Clock("flow", idle_us=50), Clock("flow", idle_us=50))
    time = FlowTime().advanced(SeenTimes({NODE: 100, OTHER: 40}), flow, now_us=0)
    time = time.advanced(SeenTimes({NODE: 200}), flow, now_us=60)
    # All that is open of the silent one closes first; then it goes along.
    assert (watermark(time, NODE), watermark(time, OTHER)) == (200, 200)
    time = time.advanced(SeenTimes({OTHER: 150}), flow, now_us=61)
    assert watermark(time, OTHER) == 200


def test_source_that_never_spoke_is_waited_for_until_it_counts_as_silent() -> None:
    flow = rules(Clock("flow", idle_us=50), Clock("flow"))
    both = {"lagging": False, "draining": False, "now_us": 0}
    time = FlowTime().advanced(SeenTimes({OTHER: 100}), flow, now_us=49)
    assert time.operator_time(1, (NODE, OTHER), **both).fire_us == BEGINNING_OF_TIME
    assert time.wake_us(flow, now_us=49) == 50
    time = time.advanced(SeenTimes(), flow, now_us=50)
    assert time.operator_time(1, (NODE, OTHER), **both).fire_us == 100


def test_sources_that_are_all_silent_close_what_is_open_together() -> None:
    flow = rules(Clock("flow", idle_us=50), Clock("flow", idle_us=50))
    both = {"lagging": False, "draining": False, "now_us": 0}
    never_heard = FlowTime().advanced(SeenTimes({NODE: 104}), flow, now_us=0)
    heard_long_ago = FlowTime().advanced(SeenTimes({NODE: 104, OTHER: 41}), flow, now_us=0)
    for time in (never_heard, heard_long_ago):
        silent = time.advanced(SeenTimes(), flow, now_us=50)
        assert silent.operator_time(1, (NODE, OTHER), **both).fire_us == 110
        back = silent.advanced(SeenTimes({OTHER: 90}), flow, now_us=60)
        assert back.operator_time(2, (NODE, OTHER), **both).fire_us == 110


def test_partition_too_far_behind_the_median_holds_nobody_up() -> None:
    clock = Clock("partition", delay_us=0, behind_us=16_000)
    tally = TimeTally(1_000, {100: 50, 20: 10})
    seen = SeenTimes({NODE: 100_500}, {NODE: {"north": 100_500, "south": 20_500}}, {NODE: tally})
    time = FlowTime().advanced(seen, rules(clock), now_us=0)
    assert time.floor_us((NODE,), clock.behind_us) == 84_000
    assert watermark(time) == 100_500


def test_median_never_goes_back_and_is_missing_where_nobody_may_be_behind() -> None:
    clock = Clock("key", behind_us=16_000)
    time = FlowTime().advanced(SeenTimes({NODE: 1}, {}, {NODE: TimeTally(1_000, {100: 5_000})}), rules(clock), now_us=0)
    time = time.advanced(SeenTimes({NODE: 1}, {}, {NODE: TimeTally(1_000, {50: 50_000})}), rules(clock), now_us=1)
    assert time.floor_us((NODE,), 16_000) == 84_000
    assert time.floor_us((NODE,), None) == BEGINNING_OF_TIME
    assert time.floor_us((NODE, OTHER), 16_000) == BEGINNING_OF_TIME
    assert time.floor_us((), 16_000) == BEGINNING_OF_TIME


def test_manifest_of_the_first_version_is_read() -> None:
    time = FlowTime.from_json({"latest": {"0": 12}, "current": {"0": 10}, "previous": {"0": 8}})
    assert time == FlowTime({0: 12}, {0: 10}, {0: 8})
    assert watermark(time.renamed({0: NODE}).advanced(saw(north=11), rules(PARTITIONED), now_us=0)) == 10


def test_flow_wide_watermark_is_written_as_it_was_in_the_first_version() -> None:
    time = FlowTime().advanced(SeenTimes({NODE: 12}), rules(Clock(delay_us=2)), now_us=5)
    assert set(time.to_json()) == {"latest", "current", "previous"}


def test_drain_closes_what_it_fired() -> None:
    time = FlowTime().advanced(saw(north=12), rules(PARTITIONED), now_us=0)
    assert time.operator_time(1, (NODE,), lagging=False, draining=True, now_us=0).fire_us == END_OF_TIME
    time = time.advanced(saw(), rules(PARTITIONED), now_us=1, fired_until={NODE: 20})
    assert time.operator_time(2, (NODE,), lagging=False, draining=False, now_us=0) == OperatorTime(
        2, closed_us=20, fire_us=20, fired_us=20
    )


# -- against a plain oracle ------------------------------------------------------------------------------------------


@dataclass
class Oracle:
    """One watermark node, partition by partition, in plain Python."""

    clock: Clock
    rows: list[int] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    ever_latest: int | None = None
    watermark: int = BEGINNING_OF_TIME

    def advance(self, seen: dict[str, list[int]], now_us: int) -> None:
        counted_before = set(self.latest)
        for name, times in seen.items():
            self.latest[name] = max([*times, self.latest.get(name, times[0])])
            self.heard[name] = now_us
            self.ever_latest = max([*times, self.ever_latest or times[0]])
        spoke = counted_before | set(seen)
        if self.clock.idle_us is not None:
            for name in list(self.latest):
                if now_us - self.heard[name] >= self.clock.idle_us:
                    del self.latest[name]
        if self.latest:
            self.watermark = max(self.watermark, min(self.latest.values()) - self.clock.delay_us)
        elif spoke and self.ever_latest is not None:
            self.watermark = max(self.watermark, end_of_window(NODE, self.ever_latest))


steps = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 200), min_size=1, max_size=3), max_size=3),
        st.integers(0, 40),
    ),
    max_size=12,
)


@tries(200)
@given(steps, st.sampled_from([None, 20, 60]), st.integers(0, 20), st.sampled_from(["partition", "flow"]))
def test_watermark_is_that_of_the_oracle_and_never_goes_back(
    batches: list[tuple[dict[str, list[int]], int]], idle_us: int | None, delay_us: int, per: str
) -> None:
    clock = Clock(per, delay_us, idle_us=idle_us)  # type: ignore[arg-type]
    oracle, time, now_us = Oracle(clock), FlowTime(), 0
    for seen, pause_us in batches:
        now_us += pause_us
        before = watermark(time)
        flat = seen if per == "partition" else {"": [us for times in seen.values() for us in times]} if seen else {}
        oracle.advance(flat, now_us)
        latest = {name: max(times) for name, times in seen.items()}
        time = time.advanced(saw(**latest), rules(clock), now_us=now_us)
        time = FlowTime.from_json(json.loads(json.dumps(time.to_json())))
        assert watermark(time) == oracle.watermark
        assert watermark(time) >= before
        wake_us = time.wake_us(rules(clock), now_us=now_us)
        assert wake_us is None or wake_us > now_us


times_of_rows = st.lists(st.integers(0, 400_000), min_size=1, max_size=60)


@tries(100)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), times_of_rows, max_size=3), max_size=8))
def test_neither_watermark_nor_floor_goes_back_whoever_is_behind(batches: list[dict[str, list[int]]]) -> None:
    clock = Clock("partition", behind_us=16_000)
    time = FlowTime()
    for now_us, seen in enumerate(batches):
        rows = [us for times in seen.values() for us in times]
        tally = TimeTally(
            1_000, {step: sum(us // 1_000 == step for us in rows) for step in {us // 1_000 for us in rows}}
        )
        latest = {name: max(times) for name, times in seen.items()}
        observed = SeenTimes(saw(**latest).latest_us, {NODE: latest}, {NODE: tally} if rows else {})
        after = time.advanced(observed, rules(clock), now_us=now_us)
        floor_us = after.floor_us((NODE,), clock.behind_us)
        assert floor_us >= time.floor_us((NODE,), clock.behind_us)
        assert watermark(after) >= watermark(time)
        counted = [us for us in (p.latest_us for p in after.partitions.get(NODE, {}).values()) if us >= floor_us]
        if counted:
            assert watermark(after) == max(min(counted), watermark(time))
        time = FlowTime.from_json(json.loads(json.dumps(after.to_json())))
        assert time == after
