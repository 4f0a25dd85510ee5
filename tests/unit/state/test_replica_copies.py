"""Replicas in a host's memory: whole and checked, or not there; within a limit; gone with their epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.model import RunRef
from anabranch.state.checksums import checksum_of
from anabranch.state.copies.replicas import ReplicaCopies, open_replica_copies

CONTENT = bytes(range(256)) * 12
RUN = RunRef("state/1/0/run.arrow", 1, len(CONTENT), checksum_of(CONTENT), 0)
CAP_BYTES = 10_000


@pytest.fixture
def copies(tmp_path: Path) -> ReplicaCopies:
    opened = open_replica_copies("flow", 1, 0.0, tmp_path)
    assert opened is not None
    return opened


def test_a_replica_is_there_once_its_last_stretch_is(copies: ReplicaCopies) -> None:
    assert copies.add(RUN, 0, CONTENT[:1000], CAP_BYTES) == ""
    assert copies.find(RUN.file) is None
    assert list(copies.list_begun().values()) == [1000] and copies.list_held() == {}
    # A task that is run again sends again.
    assert copies.add(RUN, 0, CONTENT[:1000], CAP_BYTES) == ""
    assert copies.add(RUN, 1000, CONTENT[1000:], CAP_BYTES) == ""
    found = copies.find(RUN.file)
    assert found is not None and found.read_bytes() == CONTENT
    assert list(copies.list_held().values()) == [len(CONTENT)] and copies.list_begun() == {}
    assert copies.add(RUN, 1000, CONTENT[1000:], CAP_BYTES) == ""
    assert copies.list_begun() == {}


def test_a_stretch_does_not_leave_a_gap_behind_it(copies: ReplicaCopies) -> None:
    assert "has not arrived" in copies.add(RUN, 1000, CONTENT[1000:], CAP_BYTES)
    assert copies.find(RUN.file) is None


@pytest.mark.parametrize(
    "wrong", [replace(RUN, checksum="crc32:00000000"), replace(RUN, bytes=len(CONTENT) - 1)], ids=["bytes", "length"]
)
def test_what_is_not_as_the_manifest_says_is_forgotten(copies: ReplicaCopies, wrong: RunRef) -> None:
    assert "not what its manifest says" in copies.add(wrong, 0, CONTENT, CAP_BYTES)
    assert copies.find(RUN.file) is None
    assert copies.list_begun() == copies.list_held() == {}


def test_what_a_dead_sender_left_is_written_over(copies: ReplicaCopies) -> None:
    copies.add(RUN, 0, b"x" * 1000, CAP_BYTES)
    assert copies.add(RUN, 0, CONTENT, CAP_BYTES) == ""
    assert copies.find(RUN.file) is not None


def test_replicas_keep_to_their_limit_and_forget_only_what_they_are_told(copies: ReplicaCopies) -> None:
    others = [replace(RUN, file=f"state/1/0/{number}.arrow") for number in range(4)]
    assert [bool(copies.add(other, 0, CONTENT, CAP_BYTES)) for other in others] == [False, False, False, True]
    assert sum(copies.list_held().values()) <= CAP_BYTES
    copies.drop(sorted(copies.list_held())[:1])
    assert len(copies.list_held()) == 2
    assert copies.add(others[3], 0, CONTENT, CAP_BYTES) == ""


def test_a_new_epoch_sweeps_replicas_of_the_older_ones(copies: ReplicaCopies, tmp_path: Path) -> None:
    copies.add(RUN, 0, CONTENT, CAP_BYTES)
    newer = open_replica_copies("flow", 2, 0.0, tmp_path)
    assert newer is not None and not copies.folder.exists()
    # A sender of the old epoch that is still at work does no harm.
    assert "cannot be kept" in copies.add(RUN, 0, CONTENT, CAP_BYTES)
