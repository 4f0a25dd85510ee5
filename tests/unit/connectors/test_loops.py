"""A flow that would read what it writes is refused before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.connectors.feedback_loops import refuse_loops
from anabranch.connectors.filesystem.listing import list_files, would_list
from anabranch.connectors.sink_ownership import name_sinks
from anabranch.errors import SinkError, SourceError
from property_tests import tries

SCHEMA = {"sensor": pl.Int64}


def source(path: Path, **more: Any) -> Any:
    path.mkdir(parents=True, exist_ok=True)
    return ab.files(path, format="json", schema=SCHEMA, **more)


def flow(read: Any, write: Any, dead_letter: Any = None) -> ab.Flow:
    made = ab.Flow("loop")
    made.read(read).write(write)
    if dead_letter is not None:
        made.dead_letter(dead_letter)
    return made


def check_run(made: ab.Flow, checkpoint: Path | str) -> None:
    made.check(checkpoint=checkpoint, trigger="available-now")


SINKS = {
    "parquet": ab.parquet,
    "json": ab.json_lines,
    "memory": ab.to_memory,
    "delta": ab.delta,
    "partitioned delta": lambda path: ab.delta(path, partition_by="sensor"),
}


@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
def test_a_sink_below_a_recursive_source_is_refused(make: Any, tmp_path: Path) -> None:
    made = flow(source(tmp_path / "in", recursive=True), make(tmp_path / "in" / "out"))
    with pytest.raises(SinkError, match=r"sink 0 \(.*\) would write .*in/out/.*the source files .*/in .*would read"):
        made.check()


@pytest.mark.parametrize("make", [ab.parquet, ab.json_lines, ab.to_memory, ab.delta])
def test_a_sink_in_its_sources_directory_is_refused(make: Any, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"feed on its own results.*write somewhere else"):
        flow(source(tmp_path / "in"), make(tmp_path / "in")).check()


def test_dead_letters_do_not_come_back_either(tmp_path: Path) -> None:
    made = flow(source(tmp_path / "in"), ab.parquet(tmp_path / "out"), ab.json_lines(tmp_path / "in"))
    with pytest.raises(SinkError, match="the dead-letter sink"):
        made.check()


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for read, write in (("real", "link"), ("link", "real"), ("link", "link")):
        with pytest.raises(SinkError, match="feed on its own results"):
            flow(source(tmp_path / read), ab.json_lines(tmp_path / write)).check()
    inner = tmp_path / "in" / "inner"
    (tmp_path / "in").mkdir()
    inner.symlink_to(tmp_path / "real")
    for write in ("real", "real/deeper", "link/deeper"):
        with pytest.raises(SinkError, match="feed on its own results"):
            flow(source(tmp_path / "in", recursive=True), ab.json_lines(tmp_path / write)).check()
    # A link back is followed once.
    (tmp_path / "real" / "back").symlink_to(tmp_path / "in")
    assert would_list(str(tmp_path / "in"), "*", True, str(tmp_path / "real" / "x.json"))


def test_memory_in_a_named_directory_is_no_exception(tmp_path: Path) -> None:
    frames = ab.memory(pl.DataFrame({"sensor": [1]}), directory=tmp_path / "frames")
    with pytest.raises(SinkError, match="feed on its own results"):
        flow(frames, ab.to_memory(tmp_path / "frames" / "out")).check()
    flow(frames, ab.parquet(tmp_path / "frames" / "out")).check()


def test_a_global_store_in_the_sources_directory_is_refused(tmp_path: Path) -> None:
    made = ab.Flow("loop")
    rows = made.read(source(tmp_path / "in"))
    keyed = rows.key_by("sensor", exchange="global")
    keyed.agg(rows=ab.count()).write(ab.global_store(tmp_path / "in" / "store.sqlite", table="t"))
    with pytest.raises(SinkError, match=r"store\.sqlite, which the source"):
        made.check()


def test_what_the_source_does_not_look_at_is_allowed(tmp_path: Path) -> None:
    flow(source(tmp_path / "in"), ab.json_lines(tmp_path / "in" / "out")).check()
    flow(source(tmp_path / "out" / "in", recursive=True), ab.json_lines(tmp_path / "out")).check()
    flow(source(tmp_path / "in", recursive=True), ab.json_lines(tmp_path / "in" / "_out")).check()
    flow(source(tmp_path / "in", pattern="*.log"), ab.json_lines(tmp_path / "in")).check()
    flow(source(tmp_path / "in"), ab.console()).check()


def test_the_checkpoint_is_neither_read_nor_written_to(tmp_path: Path) -> None:
    state = tmp_path / "in" / "state"
    out = ab.parquet(tmp_path / "out")
    for read in (
        source(tmp_path / "in", recursive=True),
        source(state),
        source(state / "dead-letter"),
        source(state / "commits", pattern="*.csv"),
    ):
        with pytest.raises(SourceError, match="files of the flow's own checkpoint"):
            check_run(flow(read, out), state)
    for write in (state, state / "out", state / "commits"):
        with pytest.raises(SinkError, match=r"sink 0 .*among the files of the flow's own checkpoint"):
            check_run(flow(source(tmp_path / "other"), ab.parquet(write)), state)
    with pytest.raises(SinkError, match="the dead-letter sink"):
        check_run(flow(source(tmp_path / "other"), out, ab.json_lines(state / "state")), state)
    with pytest.raises(SourceError, match="own checkpoint"):
        check_run(flow(source(tmp_path / "in", recursive=True), out), f"file://{state}")


def test_a_checkpoint_that_the_source_does_not_look_at_is_allowed(tmp_path: Path) -> None:
    out = ab.parquet(tmp_path / "out")
    check_run(flow(source(tmp_path / "in", recursive=True), out), tmp_path / "in" / "_state")
    check_run(flow(source(tmp_path / "in", recursive=True, pattern="*.log"), out), tmp_path / "in" / "state")
    check_run(flow(source(tmp_path / "in"), out), tmp_path / "in" / "state")
    check_run(flow(source(tmp_path / "in"), out), tmp_path / "out" / "state")
    check_run(flow(source(tmp_path / "in"), out, ab.json_lines(tmp_path / "s" / "dead-letter")), tmp_path / "s")


def test_a_topic_that_is_read_and_written_is_refused() -> None:
    read = ab.kafka("kafka-1:9092, kafka-2:9092", "readings", schema=SCHEMA)
    made = ab.Flow("loop")
    made.read(read).write(ab.kafka_topic("SASL_SSL://KAFKA-2:9092", "readings"))
    with pytest.raises(SinkError, match=r"would write the topic readings of .*which the source kafka readings"):
        refuse_loops(made.sources, name_sinks(made.sinks, None))
    refuse_loops([read], {"sink 0": ab.kafka_topic("kafka-1:9092", "alerts")})


NAMES = st.sampled_from(["a", "b", "_c", ".d", "e.tmp"])


@tries(60)
@given(data=st.data())
def test_a_file_would_be_listed_exactly_if_it_is_listed_once_it_is_there(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("tree")
    folders = [root]
    for _ in range(data.draw(st.integers(1, 6))):
        parent, name = data.draw(st.sampled_from(folders)), data.draw(NAMES)
        made = parent / name
        if made.exists() or made.is_symlink():
            continue
        if data.draw(st.booleans()):
            made.mkdir()
        else:
            # No way back up: listing such a tree has no end.
            others = [folder for folder in folders if not made.resolve().is_relative_to(folder.resolve())]
            if not others:
                continue
            made.symlink_to(data.draw(st.sampled_from(others)))
        folders.append(made)
    read, write = data.draw(st.sampled_from(folders)), data.draw(st.sampled_from(folders))
    pattern, recursive = data.draw(st.sampled_from(["*", "*.json", "*.csv"])), data.draw(st.booleans())
    path = write / data.draw(st.sampled_from(["x.json", "_x.json", "x.csv.tmp"]))
    said = would_list(str(read), pattern, recursive, str(path))
    path.write_text("{}")
    real = path.resolve()
    found = {Path(entry.path).resolve() for entry in list_files(str(read), pattern, recursive)}
    assert said == (real in found)
