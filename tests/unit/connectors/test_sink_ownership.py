from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors import console, foreach, json_lines, parquet, to_memory
from anabranch.connectors.sink_ownership import ExclusiveSink, claim_places, name_sinks, refuse_shared_places
from anabranch.errors import SinkError
from anabranch.model import Sink


class TableSink:
    """A sink of a user that shares its table with others: it has neither ``place`` nor ``claim``."""

    label, suffix = "table", ".arrow"

    def check(self, schema: Any) -> None: ...
    def encode(self, frame: Any) -> bytes:
        return b""

    def publish(self, batch: int, staged: Any, context: Any) -> None: ...
    def retract(self, after_batch: int) -> None: ...


class OwnTableSink(TableSink):
    """A sink of a user that wants its table for itself."""

    place = "db/table"

    def __init__(self) -> None:
        self.claims: list[tuple[str, int | None]] = []

    def claim(self, flow: str, last_batch: int | None) -> None:
        self.claims.append((flow, last_batch))


def check(*sinks: Sink, dead_letter: Sink | None = None) -> None:
    refuse_shared_places(name_sinks(sinks, dead_letter))


def test_sinks_that_keep_files_own_their_place_and_others_do_not(tmp_path: Path) -> None:
    for owner in (parquet(tmp_path), json_lines(tmp_path), to_memory(), OwnTableSink()):
        assert isinstance(owner, ExclusiveSink)
    for sharer in (console(), foreach(print), TableSink()):
        assert not isinstance(sharer, ExclusiveSink)


def test_two_sinks_in_one_directory_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=rf"sink 0 and sink 2 \(parquet {tmp_path}/a and json {tmp_path}/a\).*same"):
        check(parquet(tmp_path / "a"), parquet(tmp_path / "b"), json_lines(tmp_path / "a"))


def test_same_directory_is_found_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    for other in ("link", f"file://{tmp_path}/real", "x/../real/"):
        with pytest.raises(SinkError, match="same place"):
            check(parquet("real"), parquet(other))
    with pytest.raises(SinkError, match="same place"):
        check(parquet("s3://bucket/alerts"), json_lines("s3://bucket/alerts/"))


def test_one_sink_written_to_twice_is_refused() -> None:
    sink = to_memory()
    with pytest.raises(SinkError, match=r"sink 0 and sink 1 \(memory and memory\)"):
        check(sink, sink)


def test_dead_letters_need_a_place_of_their_own_too(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="sink 0 and the dead-letter sink"):
        check(json_lines(tmp_path), dead_letter=json_lines(tmp_path))


def test_sinks_without_a_place_may_be_as_many_as_one_likes() -> None:
    shared = TableSink()
    check(console(), console(), shared, shared, foreach(print), foreach(print))


def test_places_are_claimed_for_the_flow_and_sinks_without_one_are_left_alone() -> None:
    owner = OwnTableSink()
    claim_places([TableSink(), owner, console()], "alerts", 7)
    assert owner.claims == [("alerts", 7)]
