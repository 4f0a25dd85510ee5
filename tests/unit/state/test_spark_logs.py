"""Spark's own logs are looked at before Spark is started upon them."""

from __future__ import annotations

import pytest

from anabranch.errors import StateDamaged
from anabranch.state import Checkpoint, Store
from anabranch.state.repair import refuse_lost_logs
from anabranch.state.spark_logs import METADATA, drop_orphans, find_problem, mend_metadata
from unit.state.builders import checksums_of, commit_batches

QUERY = "2b4f91fd-8ea7-4c00-ae82-8857c9471184"


@pytest.fixture
def stopped(checkpoint: Checkpoint) -> Checkpoint:
    """A flow that was stopped after batch 4; batch 5 is planned, and not committed."""
    commit_batches(checkpoint, 5)
    store = checkpoint.store
    store.delete([f"spark/offsets/{batch}" for batch in range(6, 20)])
    store.delete([f"spark/commits/{batch}" for batch in range(5, 20)])
    return checkpoint


def test_whole_logs_are_left_alone(stopped: Checkpoint) -> None:
    assert find_problem(stopped.store, 4) is None
    # Spark reads no older commit than the last one,
    stopped.store.delete(["spark/commits/3", "spark/commits/.3.crc"])
    assert find_problem(stopped.store, 4) is None
    # and may have died before it wrote down that the last batch was done.
    stopped.store.write("spark/commits/3", b"v1\n{}")
    stopped.store.delete(["spark/offsets/5", "spark/commits/4"])
    assert find_problem(stopped.store, 4) is None


@pytest.mark.parametrize(
    ("file", "content", "to"),
    [
        ("spark/offsets/4", None, 3),
        ("spark/offsets/4", b"v1\n{", 3),
        ("spark/offsets/4", b"v1\n{}", 3),
        ("spark/offsets/5", b"", 4),
        ("spark/commits/4", None, 4),
        ("spark/commits/4", b"v1", 3),
        ("spark/offsets/3", b"\xff\xfe", 2),
    ],
)
def test_a_lost_entry_is_named_with_the_batch_to_return_to(
    stopped: Checkpoint, file: str, content: bytes | None, to: int
) -> None:
    stopped.store.delete([file])
    if content is not None:
        stopped.store.write(file, content)
    latest = stopped.latest()
    assert latest is not None
    with pytest.raises(StateDamaged, match=rf"{file} is (missing|damaged).*rollback --to {to}"):
        refuse_lost_logs(stopped, latest)


def test_logs_that_are_all_gone_are_asked_for_again(stopped: Checkpoint) -> None:
    stopped.store.delete([entry.name for entry in stopped.store.list("spark")])
    assert find_problem(stopped.store, 4) is None
    assert not mend_metadata(stopped.store, QUERY)


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"id":"2b4f', b'{"id":7}'])
def test_a_lost_id_of_the_query_is_written_anew(store: Store, content: bytes | None) -> None:
    store.delete([METADATA])
    if content is not None:
        store.write(METADATA, content)
    assert mend_metadata(store, QUERY)
    assert QUERY.encode() in store.read(METADATA)
    assert not mend_metadata(store, "another")


def test_a_checksum_file_without_its_entry_is_removed_for_spark_takes_it_for_another_query(store: Store) -> None:
    store.delete(["spark/commits/19"])
    drop_orphans(store)
    assert not store.exists("spark/commits/.19.crc")
    assert store.exists("spark/commits/.18.crc") and store.exists("spark/offsets/.19.crc")


def test_an_entry_that_is_not_what_its_checksum_file_says_is_named_with_the_batch_to_return_to(
    stopped: Checkpoint,
) -> None:
    content = b"v1\n{}\n" + b'{"entry": 4}' + b" " * 900
    stopped.store.write("spark/offsets/4", content)
    stopped.store.write("spark/offsets/.4.crc", checksums_of(content))
    latest = stopped.latest()
    assert latest is not None
    refuse_lost_logs(stopped, latest)
    stopped.store.write("spark/offsets/4", content.replace(b"4}", b"5}"))
    with pytest.raises(StateDamaged, match=r"spark/offsets/4 is damaged.*rollback --to 3"):
        refuse_lost_logs(stopped, latest)


@pytest.mark.parametrize("content", [b"", b"crc\0", b"crc\0\0\0\2\0abc", b"crd\0\0\0\2\0abcd", b"crc\0\0\0\0\0abcd"])
def test_a_checksum_file_that_is_none_is_dropped_and_its_entry_counts(stopped: Checkpoint, content: bytes) -> None:
    stopped.store.write("spark/offsets/.4.crc", content)
    stopped.store.write("spark/offsets/.3.crc", checksums_of(stopped.store.read("spark/offsets/3")))
    assert find_problem(stopped.store, 4) is None
    drop_orphans(stopped.store)
    assert not stopped.store.exists("spark/offsets/.4.crc")
    assert stopped.store.exists("spark/offsets/.3.crc")
