"""A checkpoint knows its sources and sinks again by what they are, whatever their order and names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model.identities import Identity
from anabranch.state import Store
from anabranch.state.endpoints import (
    ENDPOINTS,
    Endpoint,
    Endpoints,
    Written,
    fill_in,
    load_endpoints,
    match,
    number_first,
    store_endpoints,
)


def files(directory: str, pattern: str = "*") -> Identity:
    return Identity("files", (f"/data/{directory}",), {"pattern": pattern})


def kafka(*topics: str) -> Identity:
    return Identity("kafka", topics)


def in_memory(process: str, place: int) -> Identity:
    return Identity("memory", (f"/tmp/{process}-{place}",), lasting=False)


NORTH, SOUTH = Written(files("north")), Written(files("south"))
KNOWN = number_first("source", [NORTH, SOUTH]).known


def test_reordered_sources_keep_their_numbers() -> None:
    assert match("source", KNOWN, [NORTH, SOUTH]).numbers == (0, 1)
    swapped = match("source", KNOWN, [SOUTH, NORTH])
    assert swapped.numbers == (1, 0)
    assert swapped.known == KNOWN
    assert swapped.notes == ()


def test_first_numbers_do_not_depend_on_the_order_in_which_sources_are_written() -> None:
    assert number_first("source", [SOUTH, NORTH]).known == KNOWN
    assert number_first("source", [SOUTH, NORTH]).numbers == (1, 0)
    assert number_first("sink", [SOUTH, NORTH]).numbers == (0, 1)


def test_an_added_source_gets_a_number_of_its_own() -> None:
    matched = match("source", KNOWN, [Written(files("east")), SOUTH, NORTH])
    assert matched.numbers == (2, 1, 0)
    assert "'east' (files /data/east) is new" in matched.notes[0]


def test_a_removed_source_must_be_dropped_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"'south' \(files /data/south\).*--drop-source south"):
        match("source", KNOWN, [NORTH])
    dropped = match("source", KNOWN, [NORTH], drop=["south"])
    assert dropped.known == (KNOWN[0], Endpoint(1, "south", SOUTH.identity, gone=True))
    # The same command again, and the same source again later: as a new one.
    assert match("source", dropped.known, [NORTH], drop=["south"]).known == dropped.known
    assert match("source", dropped.known, [NORTH, SOUTH]).numbers == (0, 2)


def test_an_unknown_name_cannot_be_dropped() -> None:
    with pytest.raises(CheckpointError, match=r"'east'.* it has 'north', 'south'"):
        match("source", KNOWN, [NORTH, SOUTH], drop=["east"])


def test_a_source_that_is_still_read_is_not_dropped_by_its_name() -> None:
    assert match("source", KNOWN, [NORTH, SOUTH], drop=["south"]).known == KNOWN


def test_another_place_is_another_source_unless_it_is_said_to_be_the_same() -> None:
    moved = Written(files("moved/south"))
    with pytest.raises(CheckpointError, match=r"reads files /data/moved/south, which is new.*formerly='south'"):
        match("source", KNOWN, [NORTH, moved])
    same = match("source", KNOWN, [NORTH, Written(moved.identity, formerly="south")])
    assert same.numbers == (0, 1)
    assert same.known[1].identity == moved.identity
    other = match("source", KNOWN, [NORTH, moved], drop=["south"])
    assert other.numbers == (0, 2)


def test_a_name_may_change_where_the_place_tells_and_else_with_the_old_one_given() -> None:
    renamed = match("source", KNOWN, [Written(files("south"), "s"), NORTH])
    assert renamed.numbers == (1, 0)
    assert renamed.notes == ("source 'south' is called 's' from now on",)
    clock = Identity("generator", details={"seed": "0"})
    known = number_first("source", [Written(clock, "a"), Written(clock, "b")]).known
    assert match("source", known, [Written(clock, "b"), Written(clock, "a")]).numbers == (1, 0)
    assert match("source", known, [Written(clock, "c", formerly="b"), Written(clock, "a")]).numbers == (1, 0)


def test_names_that_were_swapped_do_not_swap_what_they_name() -> None:
    known = number_first("source", [Written(files("x"), "a"), Written(files("y"), "b")]).known
    assert match("source", known, [Written(files("x"), "b"), Written(files("y"), "a")]).numbers == (0, 1)


def test_two_patterns_of_a_directory_are_told_apart_and_one_alone_may_change() -> None:
    a, b = Written(files("d", "a*")), Written(files("d", "b*"))
    known = number_first("source", [a, b]).known
    assert match("source", known, [b, a]).numbers == (1, 0)
    assert match("source", known, [b, Written(files("d", "[ac]*"))]).numbers == (1, 0)
    with pytest.raises(CheckpointError):
        match("source", known, [Written(files("d", "c*")), Written(files("d", "e*"))])


def test_a_topic_may_be_added_to_a_source() -> None:
    known = number_first("source", [Written(kafka("a", "b")), Written(kafka("c"))]).known
    assert match("source", known, [Written(kafka("c")), Written(kafka("a", "b", "d"))]).numbers == (1, 0)


def test_what_lies_in_memory_is_found_by_place_in_its_process_and_by_order_in_another() -> None:
    first = [Written(in_memory("one", place)) for place in range(2)]
    known = number_first("source", first).known
    assert match("source", known, first[::-1]).numbers == (1, 0)
    later = [Written(in_memory("two", place)) for place in range(2)]
    assert match("source", known, later).numbers == (0, 1)


def test_a_sink_may_go_and_come_back_as_another() -> None:
    known = number_first("sink", [NORTH, SOUTH]).known
    gone = match("sink", known, [SOUTH])
    assert gone.numbers == (1,)
    assert "'north' (files /data/north) is not in the flow any more" in gone.notes[0]
    assert match("sink", gone.known, [SOUTH, NORTH]).numbers == (1, 2)


def test_names_that_nobody_gave_are_made_of_the_place_and_differ() -> None:
    same = [Written(Identity("files", (f"/{folder}/in",))) for folder in "abc"]
    assert [one.name for one in number_first("source", same).known] == ["in", "in-2", "in-3"]


@given(st.randoms(use_true_random=False), st.integers(1, 7))
def test_whatever_comes_and_goes_a_number_stands_for_one_thing_for_ever(chance: random.Random, runs: int) -> None:
    pool = [
        *(Written(files(folder, pattern)) for folder in "pq" for pattern in ("*", "x*")),
        *(Written(kafka(topic), name) for topic, name in zip("rs", ("left", "right"), strict=True)),
        *(Written(Identity("generator", details={"seed": str(seed)}), f"made-{seed}") for seed in range(2)),
    ]
    stood_for: dict[int, Identity] = {}
    known: tuple[Endpoint, ...] = ()
    for run in range(runs):
        flow = chance.sample(pool, chance.randint(1, len(pool)))
        drop = [one.name for one in known if not one.gone and all(one.identity != w.identity for w in flow)]
        # One pattern of a directory alone may be taken for the other one, changed: that is what it looks like.
        places = [w.identity.places for w in flow if w.identity.kind == "files"]
        if len(set(places)) * 2 != len(places):
            flow = [w for w in flow if w.identity.kind != "files"] or [pool[-1]]
            drop = [one.name for one in known if not one.gone and all(one.identity != w.identity for w in flow)]
        matched = match("source", known, flow, drop) if run else number_first("source", flow)
        known = matched.known
        for number, one in zip(matched.numbers, flow, strict=True):
            assert stood_for.setdefault(number, one.identity) == one.identity
        assert len({one.name for one in known if not one.gone}) == len(flow)


def test_what_a_driver_wrote_is_there_for_the_next(store: Store) -> None:
    assert load_endpoints(store) is None
    first = Endpoints(KNOWN, number_first("sink", [NORTH]).known)
    store_endpoints(store, first, epoch=1)
    assert load_endpoints(store) == first
    second = Endpoints(match("source", KNOWN, [NORTH], drop=["south"]).known, first.sinks)
    store_endpoints(store, second, epoch=12)
    assert load_endpoints(store) == second


def test_a_damaged_list_is_noticed(store: Store) -> None:
    store_endpoints(store, Endpoints(KNOWN, ()), epoch=1)
    (entry,) = store.list(ENDPOINTS)
    written = store.read(entry.name)
    for content in (written[:-9], written.replace(b"north", b"forth", 1), b""):
        store.write(entry.name, content)
        with pytest.raises(StateDamaged, match=r"endpoints/00000001\.json"):
            load_endpoints(store)


def test_a_checkpoint_without_names_is_filled_in_in_the_order_of_the_flow() -> None:
    assert fill_in("source", [SOUTH, NORTH]).numbers == (0, 1)
