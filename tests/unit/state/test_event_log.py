"""The history of a checkpoint: all that happened is there, once, whatever became of those who wrote it down."""

from __future__ import annotations

import itertools
import json
import logging
import random
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import Fenced
from anabranch.model import BatchProgress
from anabranch.model.events import (
    BatchEvent,
    DecisionEvent,
    EffectEvent,
    Event,
    FailureEvent,
    HistoryRecord,
    RecoveryEvent,
    RouteDelta,
    SlotRecovery,
    SpanEvent,
    StartEvent,
    StopEvent,
    tell_decisions,
    with_company,
)
from anabranch.model.moves import PlanCosts
from anabranch.model.progress import RunTotals
from anabranch.state import Checkpoint, Store, open_store, verify
from anabranch.state.checksums import seal_document
from anabranch.state.event_files import FOLDER, HistoryFile, list_files, read_history
from anabranch.state.event_log import EventLog
from anabranch.state.store import Entry, LocalStore, StoreFull, StoreUnusable
from property_tests import tries
from unit.cli.builders import EXCHANGE, batch
from unit.state.builders import PROCESSES

OLD_FILES = Path(__file__).parent / "data" / "history-format-1"
"""As the version before numbered events wrote them: two drivers, the first one killed behind the commit of batch 2."""

DECISION = DecisionEvent(
    batch=7,
    operator="agg",
    action="split",
    sender="balancer",
    reason="the busiest slot has 2.000 × its share",
    protocol="state",
    costs=asdict(PlanCosts(0.25, 2, 100.0, 50.0)),
    imbalance_before=2.0,
    imbalance_expected=1.0,
    change=RouteDelta(4, 4, split_keys=1, moved_buckets=3),
)
EVERY_KIND: list[Event] = [
    StartEvent("host", 17, "0.1.0", batch=6, undone=(3, 4)),
    StopEvent(9),
    BatchEvent(batch(7, exchanges=(EXCHANGE,)), {"entry": 6}, {"entry": 7}),
    DECISION,
    EffectEvent(8, "agg", 12, 1.5, 200),
    FailureEvent("out of memory", 7, 1),
    RecoveryEvent("attempts", "try 2 succeeded", 7),
    RecoveryEvent("replica", "a host is gone", 7, 0.4, 1.5, 2.0, (SlotRecovery(1, 0, "a", "b", replica_runs=3),)),
    SpanEvent(0, 99, 12.5, RunTotals(batches=100, slot_rows=(1, 2)), 50.0, 1.0, 2.0),
]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path / "c" if request.param == "local" else f"memory://{tmp_path}/c")


def always() -> None:
    """Stands for the lease of a driver that nobody replaced."""


def open_log(store: Store, epoch: int = 1, **settings: int) -> EventLog:
    return EventLog(store, epoch, always, **settings)


def add(log: EventLog, *events: Event, at: float = 0.0) -> list[HistoryRecord]:
    records = log.add(events, at)
    log.flush()
    return records


def add_batches(log: EventLog, numbers: Sequence[int] | range) -> None:
    for number in numbers:
        add(log, BatchEvent(batch(number)), at=float(number))


def batches_in(store: Store) -> list[tuple[int, int]]:
    return [
        (record.epoch, record.event.batch) for record in read_history(store) if isinstance(record.event, BatchEvent)
    ]


def count_told(store: Store) -> int:
    """Return how many batches are told of, summed up or not."""
    return sum(
        record.event.totals.batches if isinstance(record.event, SpanEvent) else isinstance(record.event, BatchEvent)
        for record in read_history(store)
    )


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.kind)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    record = HistoryRecord(3, 12, 12.5, event)
    assert HistoryRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_events_have_rising_numbers_and_are_read_in_their_order(store: Store) -> None:
    told = [*add(open_log(store), *EVERY_KIND), *add(open_log(store, 2), *EVERY_KIND)]
    assert [record.number for record in told] == list(range(2 * len(EVERY_KIND)))
    assert list(read_history(store)) == told


def test_a_batch_says_what_its_decisions_and_repairs_say_though_it_is_written_once(store: Store) -> None:
    progress = batch(7, problems=("a run is damaged", "a server was waited for"), **tell_decisions([DECISION]))
    log = open_log(store)
    add(log, DECISION)
    mended = RecoveryEvent("repair", "a run is damaged", 7)
    add(log, mended, BatchEvent(replace(progress, problems=("a server was waited for",))))
    *_, alone = read_history(store)
    assert isinstance(alone.event, BatchEvent) and not alone.event.progress.changes
    *_, read = with_company(read_history(store))
    assert isinstance(read.event, BatchEvent) and read.event.progress == progress
    assert progress.changes == ("agg: the busiest slot has 2.000 × its share (by the state protocol)",)


def test_decisions_of_another_try_of_a_batch_are_none_of_its_own(store: Store) -> None:
    add(open_log(store), DECISION)
    add(open_log(store, 2), BatchEvent(batch(7)))
    *_, read = with_company(read_history(store))
    assert isinstance(read.event, BatchEvent) and not read.event.progress.changes


def test_a_later_run_goes_on_behind_the_runs_before(store: Store) -> None:
    for epoch, numbers in ((1, range(3)), (2, range(2, 5)), (10, range(5, 6))):
        add_batches(open_log(store, epoch), numbers)
    assert batches_in(store) == [(1, 0), (1, 1), (1, 2), (2, 2), (2, 3), (2, 4), (10, 5)]
    assert [record.number for record in read_history(store)] == list(range(7))


def test_many_short_runs_make_no_heap_of_files(store: Store) -> None:
    for epoch in range(1, 101):
        add(open_log(store, epoch, file_bytes=20_000), StartEvent("host", 1, "0.1.0"), BatchEvent(batch(epoch)))
    assert batches_in(store) == [(epoch, epoch) for epoch in range(1, 101)]
    assert len(list_files(store)) < 8


class Replaced:
    """The lease of a driver that is replaced when somebody says so."""

    def __init__(self) -> None:
        self.is_lost = False

    def check(self) -> None:
        if self.is_lost:
            raise Fenced("a newer driver has taken the next epoch")


def test_a_driver_that_lost_its_lease_falls_silent(store: Store) -> None:
    lease = Replaced()
    old = EventLog(store, 1, lease.check)
    add_batches(old, range(3))
    lease.is_lost = True
    add_batches(old, range(3, 6))
    assert batches_in(store) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("flushes", [True, False])
def test_what_a_driver_writes_after_another_took_over_does_not_count(store: Store, flushes: bool) -> None:
    """The lease is looked at before a write, and may be lost between the two."""
    old = open_log(store)
    add_batches(old, range(3))
    if not flushes:
        old.add([BatchEvent(batch(3))], 0.0)
    new = open_log(store, 2)
    add(new, StartEvent("host", 1, "0.1.0"))
    before = list(read_history(store))
    add_batches(old, range(4, 400))
    assert list(read_history(store)) == before
    add_batches(new, range(3, 5))
    assert batches_in(store)[-2:] == [(2, 3), (2, 4)]


def test_old_batches_are_summed_up_and_everything_else_of_them_stays(store: Store) -> None:
    for epoch in (1, 2):
        log = open_log(store, epoch, kept_records=50, file_bytes=4_000)
        add(log, StartEvent("host", epoch, "0.1.0"))
        for number in range((epoch - 1) * 300, epoch * 300):
            decided = [replace(DECISION, batch=number)] if number % 100 == 0 else []
            add(log, *decided, BatchEvent(batch(number, rows_in=number)), at=float(number))
    whole = [number for _, number in batches_in(store)]
    assert whole == list(range(whole[0], 600))
    assert 40 <= len(whole) < 100
    spans = [record.event for record in read_history(store) if isinstance(record.event, SpanEvent)]
    assert [span.first_batch for span in spans] == [0, *(span.last_batch + 1 for span in spans[:-1])]
    assert sum(span.totals.rows_in for span in spans) == sum(range(whole[0]))
    assert spans[0].since == 0.0
    kinds = [record.event.kind for record in read_history(store)]
    assert (kinds.count("start"), kinds.count("decision")) == (2, 6)
    numbers = [record.number for record in read_history(store)]
    assert numbers == sorted(set(numbers))


def test_summaries_have_a_limit_and_the_oldest_go(store: Store) -> None:
    log = open_log(store, kept_records=50, file_bytes=4_000, kept_summary_bytes=10_000)
    for number in range(1_000):
        add(log, replace(DECISION, batch=number), BatchEvent(batch(number)))
    files = list_files(store)
    assert sum(file.bytes for file in files if file.form == "summary") <= 10_000
    kept = [record.event.batch for record in read_history(store) if isinstance(record.event, DecisionEvent)]
    assert kept == list(range(kept[0], 1_000))
    assert 25 < len(kept) < 200


class Dead(BaseException):
    """The end of a driver."""


@dataclass(frozen=True, slots=True)
class DyingStore(LocalStore):
    """A disk whose user is killed before or after one of its changes."""

    moments: list[int]
    """One number: how many moments are left."""

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        self._pass()
        LocalStore.write(self, name, *pieces)
        self._pass()

    def append(self, name: str, content: bytes) -> None:
        self._pass()
        LocalStore.append(self, name, content)
        self._pass()

    def delete(self, names: Iterable[str]) -> None:
        self._pass()
        LocalStore.delete(self, names)
        self._pass()

    def _pass(self) -> None:
        self.moments[0] -= 1
        if not self.moments[0]:
            raise Dead


@tries(60)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=6), st.integers(3, 40))
def test_killed_between_any_two_changes_of_files_no_batch_is_lost_or_told_twice(
    tmp_path_factory: pytest.TempPathFactory, moments: list[int], kept: int
) -> None:
    root = tmp_path_factory.mktemp("history")
    expected = 0
    for epoch, moment in enumerate(moments, start=1):
        try:
            log = open_log(DyingStore(root, [moment]), epoch, kept_records=kept, file_bytes=4_000)
            for _ in range(40):
                log.add([BatchEvent(batch(expected))], 0.0)
                expected += 1
        except Dead:
            # The event that was being written may be there or not.
            told = count_told(open_store(root))
            assert told in (expected, expected + 1)
            expected = told
        numbers = [record.number for record in read_history(open_store(root))]
        assert numbers == sorted(set(numbers))
        assert count_told(open_store(root)) == expected
    shutil.rmtree(root)


def test_a_reader_in_the_midst_of_it_misses_nothing_when_files_are_summed_up(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = open_log(store, kept_records=20, file_bytes=4_000)
    add_batches(log, range(100))
    reader = read_history(store)
    seen = [next(reader) for _ in range(2)]
    add_batches(log, range(100, 200))
    seen += reader
    told = [
        record.event.totals.batches if isinstance(record.event, SpanEvent) else 1
        for record in seen
        if isinstance(record.event, BatchEvent | SpanEvent)
    ]
    assert sum(told) == 200
    numbers = [record.number for record in seen]
    assert numbers == sorted(set(numbers))


def test_whoever_follows_gets_what_came_since(store: Store) -> None:
    log = open_log(store)
    add_batches(log, range(3))
    add_batches(log, range(3, 5))
    assert [record.event.batch for record in read_history(store, after=2)] == [3, 4]
    assert list(read_history(store, after=4)) == []


def test_a_store_that_cannot_be_added_to_gets_events_together(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path}")
    now = 0.0
    log = EventLog(store, 1, always, monotonic=lambda: now)
    for number in range(4):
        now = 2.0 * number
        log.add([BatchEvent(batch(number))], now)
        assert len(batches_in(store)) == (4 if number == 3 else 0)


def _write_for_ever(root: str, epoch: int) -> None:
    log = open_log(open_store(root), epoch, file_bytes=20_000)
    for number in itertools.count():
        add(log, BatchEvent(batch(number)))


def test_a_writer_killed_at_random_moments_leaves_whole_events_without_a_gap(tmp_path: Path) -> None:
    rng = random.Random(3)
    store = open_store(tmp_path)
    for epoch in range(1, 6):
        writer = PROCESSES.Process(target=_write_for_ever, args=(str(tmp_path), epoch))
        writer.start()
        while not any(file.epoch == epoch for file in list_files(store)):
            assert writer.is_alive()
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        writer.kill()
        writer.join()
        found = [number for writer_epoch, number in batches_in(store) if writer_epoch == epoch]
        assert found == list(range(len(found)))
        numbers = [record.number for record in read_history(store)]
        assert numbers == list(range(len(numbers)))
        assert verify(Checkpoint(store)) == []


def test_half_a_line_at_the_end_is_left_out_and_harms_no_later_run(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add_batches(open_log(store), range(3))
    (file,) = store.list(FOLDER)
    whole = store.read(file.name)
    for cut in (1, 2, 40, len(whole) // 3 - 5):
        store.write(file.name, whole[:-cut])
        assert batches_in(store) == [(1, 0), (1, 1), *([(1, 2)] if cut == 1 else [])]
        assert verify(Checkpoint(store)) == []
    add_batches(open_log(store, 2), range(2, 3))
    assert batches_in(store) == [(1, 0), (1, 1), (2, 2)]


def test_a_damaged_line_is_left_out_and_found_by_verify(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add_batches(open_log(store), range(3))
    (file,) = store.list(FOLDER)
    store.write(file.name, store.read(file.name).replace(b'"batch":1,', b'"batch":8,'))
    assert batches_in(store) == [(1, 0), (1, 2)]
    (problem,) = verify(Checkpoint(store))
    assert problem.file == file.name
    assert "line 2" in problem.detail
    assert problem.batches == ()


class FullStore(LocalStore):
    """A disk without room for the second batch."""

    def append(self, name: str, content: bytes) -> None:
        if b'"batch":1,' in content:
            super().append(name, content[: len(content) // 2])
            raise StoreFull(name)
        super().append(name, content)


def test_a_full_disk_costs_events_but_does_not_stop_the_flow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FullStore(tmp_path)
    with caplog.at_level(logging.WARNING, "anabranch"):
        add_batches(open_log(store), range(4))
    assert batches_in(store) == [(1, 0), (1, 2), (1, 3)]
    assert "the flow goes on" in caplog.text
    assert verify(Checkpoint(store)) == []


@dataclass(frozen=True, slots=True)
class SilentStore(LocalStore):
    """A store that cannot be asked once."""

    silences: list[int]

    def list(self, prefix: str) -> Sequence[Entry]:
        if self.silences and self.silences.pop():
            raise StoreUnusable(prefix)
        return LocalStore.list(self, prefix)


def test_a_history_that_cannot_be_read_is_not_begun_anew(tmp_path: Path) -> None:
    add_batches(open_log(open_store(tmp_path)), range(3))
    log = open_log(SilentStore(tmp_path, [1, 1]), 2)
    assert log.read_tail() == []
    assert add(log, BatchEvent(batch(3))) == []
    add_batches(log, range(4, 5))
    assert batches_in(open_store(tmp_path)) == [(1, 0), (1, 1), (1, 2), (2, 4)]


def test_events_of_another_kind_and_of_later_versions_are_passed_over_and_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    strange = [{"kind": "home", "version": 1, "number": 0}, {"kind": "batch", "version": 3, "number": 1}]
    for body in strange:
        store.append(HistoryFile(1, 0, "events").name, seal_document(body) + b"\n")
    log = open_log(store, 2, kept_records=5, file_bytes=4_000)
    add_batches(log, range(40))
    assert count_told(store) == 40
    assert all(seal_document(body) in store.read(list_files(store)[0].name) for body in strange)


@pytest.fixture
def old(tmp_path: Path) -> Store:
    shutil.copytree(OLD_FILES, tmp_path / FOLDER)
    return open_store(tmp_path)


def test_records_of_the_version_before_are_part_of_the_history(old: Store) -> None:
    assert batches_in(old) == [(1, 0), (1, 1), (2, 2), (2, 3)]
    progress = [record.event.progress for record in read_history(old) if isinstance(record.event, BatchEvent)]
    assert progress[1].changes == ("agg: key 3 goes to slots 0, 1 (by the state protocol)",)
    assert [one.replayed for one in progress] == [False, False, True, False]
    assert verify(Checkpoint(old)) == []
    add_batches(open_log(old, 3), range(4, 6))
    assert batches_in(old) == [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4), (3, 5)]
    assert [record.number for record in read_history(old)] == list(range(6))


def test_records_of_the_version_before_go_as_files_when_they_are_too_old(old: Store) -> None:
    log = open_log(old, 3, kept_records=50, file_bytes=4_000)
    add_batches(log, range(4, 100))
    assert not [file for file in list_files(old) if file.form == "records"]
    assert batches_in(old)[-1] == (3, 99)


def test_what_exchanges_did_is_read_as_it_was_written() -> None:
    written = batch(3, exchanges=(EXCHANGE,))
    assert BatchProgress.from_json(json.loads(json.dumps(written.to_json()))) == written
