"""The split log says what was read: an entry that is missing or damaged is never taken for nothing."""

from __future__ import annotations

import json

import pytest

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.state import Store, open_store
from anabranch.state.split_log import LogEntry, SplitLog

ENTRY = LogEntry(
    3,
    ((0, {"path": "a.json", "from": 0, "to": 9}), (2, {"path": "b"})),
    {"0": {"seen": "ab"}},
    ("odd",),
    True,
    waiting_rows=7,
    planned_at=1_790_000_000.25,
)


@pytest.fixture
def log(tmp_path_factory: pytest.TempPathFactory) -> SplitLog:
    return SplitLog(open_store(tmp_path_factory.mktemp("log")))


def test_an_entry_comes_back_as_it_was_written(log: SplitLog) -> None:
    assert log.append(ENTRY) == ENTRY
    assert log.load(3) == log.find(3) == ENTRY
    assert log.append(LogEntry(3)) == ENTRY


def test_a_missing_entry_is_an_error_where_it_must_be_there(log: SplitLog) -> None:
    log.append(LogEntry(1))
    log.append(LogEntry(3))
    assert log.find(2) is None
    with pytest.raises(CheckpointError, match=r"sources/000000000002\.json is missing"):
        log.between(0, 3)


def test_every_cut_and_every_flipped_byte_is_noticed() -> None:
    written = ENTRY.encode()
    for place in range(len(written)):
        with pytest.raises(StateDamaged):
            LogEntry.decode(written[:place], "sources/3.json")
        for bit in (1, 4, 32):
            flipped = bytearray(written)
            flipped[place] ^= bit
            try:
                assert LogEntry.decode(bytes(flipped), "sources/3.json") == ENTRY
            except StateDamaged:
                continue


def test_entries_of_version_0_1_have_no_checksum_and_are_read() -> None:
    body = {
        "number": 3,
        "splits": [[0, {"path": "a"}]],
        "positions": {"0": {"next": 4}},
        "problems": [],
        "drain": False,
    }
    entry = LogEntry.decode(json.dumps(body).encode(), "sources/3.json")
    assert entry == LogEntry(3, ((0, {"path": "a"}),), {"0": {"next": 4}})
    assert entry.planned_at is None


def test_a_log_on_an_object_store_is_the_same(store: Store) -> None:
    log = SplitLog(store)
    log.forget(4)
    log.append(LogEntry(4, problems=("new",)))
    assert log.load(4).problems == ("new",)
