"""A partitioner puts keys where the engine would look for them, and never has a (key, window) in two partitions."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.partitioner import Partitioner, produce_frame
from anabranch.errors import FlowError
from anabranch.routing import KeyBatch, Routes, hash_keys

STRATEGIES = (
    "hash",
    "modulo",
    "consistent-hash",
    "weight",
    "least-key",
    "least-count",
    "least-count-history",
    "weight-random",
)
START = datetime(2026, 1, 1)
EDGE_SECONDS = 10


def frame_of(rows: list[tuple[int, float]]) -> pl.DataFrame:
    """Return rows of (key, seconds after the start)."""
    times = [START + timedelta(seconds=seconds) for _, seconds in rows]
    schema = {"key": pl.Int64, "ts": pl.Datetime("us")}
    return pl.DataFrame({"key": [key for key, _ in rows], "ts": times}, schema=schema)


@pytest.mark.parametrize("key", [0, -7, 2**62, "berlin", b"\x00\xff", True, datetime(2026, 1, 1, 12)])
def test_one_key_hashes_as_its_column_does(key: Any) -> None:
    frame = pl.DataFrame({"key": [key]})
    expected = Routes.even(7).storage_slots(KeyBatch(hash_keys(frame, ["key"]).to_numpy()))
    partitioner = Partitioner("hash", partitions=7, keys="key")
    assert partitioner(key) == expected[0] == partitioner.of_frame(frame)[0]


def test_a_key_of_several_columns_hashes_as_the_columns_do() -> None:
    frame = pl.DataFrame({"site": ["a", "b"], "sensor": [1, 2]})
    partitioner = Partitioner("hash", partitions=5, keys=("site", "sensor"))
    assert partitioner.of_frame(frame).to_list() == [partitioner("a", 1), partitioner("b", 2)]


def test_equal_numbers_of_other_types_are_other_keys() -> None:
    partitioner = Partitioner("hash", partitions=512)
    assert partitioner(1) != partitioner(True)
    assert partitioner(1) == Partitioner("hash", partitions=512)(1)


def test_modulo_divides_integers_and_goes_by_the_hash_of_others() -> None:
    partitioner = Partitioner("modulo", partitions=4, keys="key")
    assert [partitioner(key) for key in (0, 5, -1)] == [0, 1, 3]
    assert partitioner.of_frame(pl.DataFrame({"key": [0, 5, -1]})).to_list() == [0, 1, 3]
    assert partitioner("five") in range(4)


def test_weights_are_the_parts_of_the_keys() -> None:
    partitioner = Partitioner("weight", partitions=3, keys="key", weights=(70, 20, 10))
    counts = partitioner.of_frame(pl.DataFrame({"key": range(10_000)})).value_counts().sort("partition")["count"]
    assert np.allclose(counts.to_numpy() / 10_000, (0.7, 0.2, 0.1), atol=0.02)


def test_ranges_are_cut_by_a_sample() -> None:
    partitioner = Partitioner("ranges", partitions=4, keys="key", sample=pl.DataFrame({"key": range(100)}))
    assert [partitioner(key) for key in (-5, 30, 60, 500)] == [0, 1, 2, 3]
    with pytest.raises(FlowError, match="sample"):
        Partitioner("ranges", partitions=4, keys="key")


@pytest.mark.parametrize("name", ["least-key", "least-count"])
def test_least_strategies_spread_keys_evenly(name: str) -> None:
    partitioner = Partitioner(name, partitions=7, keys="key")
    counts = partitioner.of_frame(pl.DataFrame({"key": range(700)})).value_counts()["count"]
    assert counts.max() - counts.min() <= 1


def test_least_count_puts_hot_keys_apart_once_it_knows_them() -> None:
    partitioner = Partitioner("least-count", partitions=2, keys="key", time="ts", edges="10s")
    hot = [1, 2, 3, 4]
    rows = [(key, float(window * 10)) for window in range(4) for key in (*hot * 50, *range(10, 60))]
    slots = partitioner.of_frame(frame_of(rows))
    last = slots.tail(len(rows) // 4).value_counts()["count"]
    assert last.max() - last.min() <= 55


def test_strategies_that_split_keys_are_refused() -> None:
    with pytest.raises(FlowError, match="needs it whole"):
        Partitioner("pkg", partitions=4)


@pytest.mark.parametrize("partitions", [0, -1, 2.5, True])
def test_partitions_must_be_a_number(partitions: Any) -> None:
    with pytest.raises(FlowError, match="at least 1"):
        Partitioner("hash", partitions=partitions)


def test_an_unknown_strategy_is_refused_with_those_that_exist() -> None:
    with pytest.raises(FlowError, match="least-count"):
        Partitioner("last-count", partitions=4)


def test_null_keys_and_missing_columns_are_refused() -> None:
    partitioner = Partitioner("hash", partitions=4, keys="key")
    with pytest.raises(FlowError, match="null"):
        partitioner.of_frame(pl.DataFrame({"key": [1, None]}))
    with pytest.raises(FlowError, match="no column key"):
        partitioner.of_frame(pl.DataFrame({"sensor": [1]}))
    with pytest.raises(FlowError, match="keys="):
        Partitioner("hash", partitions=4).of_frame(pl.DataFrame({"sensor": [1]}))


def test_edges_need_times() -> None:
    partitioner = Partitioner("least-key", partitions=4, keys="key", edges="10s")
    with pytest.raises(FlowError, match="time"):
        partitioner.of_frame(pl.DataFrame({"key": [1]}))
    with pytest.raises(FlowError, match="times"):
        partitioner(1)


rows_of_streams = st.lists(
    st.lists(st.tuples(st.integers(0, 20), st.floats(-15, 15)), min_size=1, max_size=30), min_size=1, max_size=8
)


@given(
    batches=rows_of_streams,
    strategy=st.sampled_from(STRATEGIES),
    one_by_one=st.booleans(),
    saves=st.booleans(),
    grows=st.sampled_from([None, 1, 3]),
)
def test_a_key_and_window_never_get_two_partitions(
    batches: list[list[tuple[int, float]]], strategy: str, one_by_one: bool, saves: bool, grows: int | None
) -> None:
    partitioner = Partitioner(strategy, partitions=3, keys="key", time="ts", edges=f"{EDGE_SECONDS}s")
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, batch in enumerate(batches):
        # Out of order by up to three windows.
        rows = [(key, number * 12 + seconds) for key, seconds in batch]
        if grows == number:
            partitioner.grow(5)
        if one_by_one:
            slots = [partitioner(key, at=START + timedelta(seconds=seconds)) for key, seconds in rows]
        else:
            slots = partitioner.of_frame(frame_of(rows)).to_list()
        for (key, seconds), slot in zip(rows, slots, strict=True):
            # By the microsecond that the time was rounded to, as the partitioner sees it.
            places[key, timedelta(seconds=seconds) // timedelta(seconds=EDGE_SECONDS)].add(slot)
        if saves:
            partitioner = pickle.loads(pickle.dumps(partitioner))
    assert all(len(found) == 1 for found in places.values())
    assert {slot for found in places.values() for slot in found} <= set(range(5 if grows is not None else 3))


@given(batches=rows_of_streams, strategy=st.sampled_from(STRATEGIES))
def test_without_edges_a_key_stays_for_good(batches: list[list[tuple[int, float]]], strategy: str) -> None:
    partitioner = Partitioner(strategy, partitions=4, keys="key")
    places: dict[int, set[int]] = defaultdict(set)
    for number, batch in enumerate(batches):
        keys = [key for key, _ in batch]
        found = partitioner.of_frame(pl.DataFrame({"key": keys})) if number % 2 else [partitioner(key) for key in keys]
        for key, slot in zip(keys, found, strict=True):
            places[key].add(slot)
    assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_sent_one_by_one_and_rows_of_frames_may_be_mixed(strategy: str) -> None:
    chance = random.Random(3)
    partitioner = Partitioner(strategy, partitions=4, keys="key", time="ts", edges="10s")
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number in range(40):
        rows = [(chance.randrange(50), number * 4 + chance.random() * 9) for _ in range(20)]
        if number % 2:
            slots = partitioner.of_frame(frame_of(rows)).to_list()
        else:
            slots = [partitioner(key, at=START + timedelta(seconds=seconds)) for key, seconds in rows]
        for (key, seconds), slot in zip(rows, slots, strict=True):
            places[key, int(seconds // 10)].add(slot)
    assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_saved_partitioner_goes_on_where_it_was(strategy: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    file = tmp_path / "assignment.json"
    whole = Partitioner(strategy, partitions=4, keys="key", time="ts", edges="10s", seed=2)
    parted = Partitioner(strategy, partitions=4, keys="key", time="ts", edges="10s", seed=2)
    for number in range(12):
        frame = frame_of([(chance.randrange(60), number * 5 + chance.random() * 9) for _ in range(50)])
        expected = whole.of_frame(frame)
        parted.save(file)
        parted = Partitioner.load(file)
        assert parted.of_frame(frame).to_list() == expected.to_list()


def test_a_file_that_is_no_partitioner_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "assignment.json"
    file.write_text('{"keys": []}')
    with pytest.raises(FlowError, match="save"):
        Partitioner.load(file)


def test_more_partitions_need_edges() -> None:
    with pytest.raises(FlowError, match="edges"):
        Partitioner("hash", partitions=2).grow(4)
    with pytest.raises(FlowError, match="fewer"):
        Partitioner("hash", partitions=2, edges="10s").grow(1)


class Recorder:
    """Takes messages as a Kafka producer does, with a queue that is full now and then."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes, bytes, int, dict[str, Any]]] = []
        self.polls = 0

    def produce(self, topic: str, value: Any = None, key: Any = None, partition: int = -1, **others: Any) -> None:
        if len(self.messages) % 5 == 4 and self.polls * 5 < len(self.messages):
            raise BufferError
        self.messages.append((topic, value, key, partition, others))

    def poll(self, timeout: float) -> int:
        self.polls += 1
        return 0


def test_a_frame_is_sent_row_by_row_to_its_partitions(tmp_path: Path) -> None:
    partitioner = Partitioner("least-key", partitions=3, keys="key", time="ts")
    frame = frame_of([(key, key / 2) for key in range(12)])
    producer = Recorder()
    slots = produce_frame(producer, "readings", frame, partitioner, save_to=tmp_path / "a.json")
    assert [message[3] for message in producer.messages] == slots.to_list()
    expected = b'{"key":3,"ts":"2026-01-01T00:00:01.500000"}'
    assert producer.messages[3][:3] == ("readings", expected, b"3")
    assert producer.messages[3][4] == {}
    assert Partitioner.load(tmp_path / "a.json").of_frame(frame).to_list() == slots.to_list()


def test_repr_names_what_counts() -> None:
    expected = "Partitioner('hash', partitions=8, keys=('sensor',))"
    assert repr(Partitioner("hash", partitions=8, keys="sensor")) == expected


def test_bytes_are_refused_as_json_unless_values_are_encoded() -> None:
    partitioner = Partitioner("hash", partitions=3, keys="key")
    frame = pl.DataFrame({"key": [b"a"]})
    with pytest.raises(FlowError, match="values="):
        produce_frame(Recorder(), "readings", frame, partitioner)
    producer = Recorder()
    produce_frame(producer, "readings", frame, partitioner, values=lambda rows: rows["key"].to_list())
    assert producer.messages[0][1:3] == (b"a", b"61")
