"""What a new user gives wrongly is refused in words of ours, with what to give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import anabranch as ab
from anabranch.query import Stream

FRAME = pl.DataFrame({"key": [1, 2], "name": ["a", "b"]})


def rows() -> Stream:
    return ab.Flow("test").read(ab.memory(FRAME))


def runnable() -> ab.Flow:
    flow = ab.Flow("test")
    flow.read(ab.memory(FRAME)).write(ab.to_memory())
    return flow


def never() -> Any:
    raise AssertionError("Spark was asked for")


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a frame to look up in": (lambda: rows().lookup(FRAME, on="key"), r"give ab\.frame_table\(frame\)"),  # type: ignore[arg-type]
    "a pandas frame to look up in": (
        lambda: rows().lookup(pd.DataFrame({"key": [1]}), on="key"),  # type: ignore[arg-type]
        r"found a pandas DataFrame; give ab\.frame_table\(frame\)",
    ),
    "a dict to look up in": (lambda: rows().lookup({1: "a"}, on="key"), r"ab\.frame_table\(pl\.DataFrame"),  # type: ignore[arg-type]
    "a path to look up in": (lambda: rows().lookup("t.parquet", on="key"), r"give ab\.parquet_table\('t\.parquet'\)"),  # type: ignore[arg-type]
    "no table": (lambda: ab.frame_table(5), r"frame_table\(\) takes Polars or pandas frames"),
    "no frame of Spark": (lambda: ab.from_spark(FRAME), r"found a polars DataFrame; give ab\.memory\(frame\)"),  # type: ignore[arg-type]
    "no path": (lambda: ab.parquet(None), r"parquet takes a path or a URL"),  # type: ignore[arg-type]
    "no callback": (lambda: ab.foreach("save"), r"foreach calls a function"),  # type: ignore[arg-type]
    "no function": (lambda: rows().map_batches("f"), r"map_batches takes a function, found the text 'f'"),  # type: ignore[arg-type]
    "no function for rows": (lambda: rows().flat_map(7, schema={"a": pl.Int64}), r"flat_map takes a function"),  # type: ignore[arg-type]
    "no stream": (lambda: rows().union("other"), r"union takes streams of the same flow, found the text 'other'"),  # type: ignore[arg-type]
    "no aggregate's column": (lambda: ab.sum(5), r"column's name or a Polars expression, found 5"),  # type: ignore[arg-type]
    "no k": (lambda: rows().key_by("key").top_k("3", "key"), r"k must be a whole number, at least 1, got '3'"),  # type: ignore[arg-type]
    "no rate": (lambda: ab.generate("fast"), r"rows_per_second is 'fast'; use a positive rate"),  # type: ignore[arg-type]
    "no name": (lambda: ab.Flow(5), r"a flow's name has letters, .* got 5"),  # type: ignore[arg-type]
    "no session": (lambda: runnable().run("state", spark="local[2]"), r"give spark=ab\.local_session\('local\[2\]'\)"),  # type: ignore[arg-type]
    "no checkpoint": (lambda: runnable().start_on(never, None), r"found None"),  # type: ignore[arg-type]
    "no listener": (lambda: runnable().start_on(never, "state", "print"), r"on_progress is called"),  # type: ignore[arg-type]
    "no state": (lambda: runnable().start_on(never, "state", None, [1]), r"initial_state is a dict"),  # type: ignore[arg-type]
    "an unknown setting": (
        lambda: runnable().start_on(never, "state", slot=3),  # type: ignore[call-arg]
        r"unknown setting 'slot'; did you mean 'slots'\? there are",
    ),
    "a setting of a wrong type": (
        lambda: runnable().start_on(never, "state", slots="many"),  # type: ignore[arg-type]
        r"slots: input should be a valid integer.* found 'many'",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_given_wrongly_is_a_flow_error_that_says_what_to_give(what: str) -> None:
    give, words = WRONG[what]
    with pytest.raises(ab.FlowError, match=words):
        give()


def test_a_pandas_frame_can_be_looked_up_in() -> None:
    table = ab.frame_table(pd.DataFrame({"key": [1], "place": ["here"]}))
    assert rows().lookup(table, on="key").schema["place"] == pl.String


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_the_checkpoint_is_said_before_spark_starts(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    for refuse in (
        lambda: runnable().start_on(never, tmp_path / place),
        lambda: runnable().check(checkpoint=tmp_path / place),
    ):
        with pytest.raises(ab.CheckpointError, match=r"file is a file, not a folder; name a folder that can be made"):
            refuse()


def test_a_checkpoint_that_cannot_be_made_is_an_error_of_ours() -> None:
    with pytest.raises(ab.CheckpointError, match=r"no files can be kept at /proc/nowhere"):
        runnable().start_on(never, "/proc/nowhere/state")


def test_a_store_without_credentials_says_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ab.CheckpointError, match=r"az://bucket/state cannot be used: .*credentials are in the environ"):
        runnable().start_on(never, "az://bucket/state")


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    runnable().check(checkpoint=tmp_path / "state", trigger="available-now")
    assert list(tmp_path.iterdir()) == []


def test_flows_and_streams_say_what_they_are() -> None:
    flow = runnable()
    assert repr(flow) == f"<Flow 'test': reads {flow.sources[0].label}; 0 steps; writes {flow.sinks[0].label}>"
    stream = rows().filter(pl.col("key") > 1).key_by("key").count_window(3)
    assert repr(stream) == (
        "<Stream of 'test' behind filter key > 1: key Int64, name String; keyed by key; in windows of 3 rows>"
    )


def test_a_session_that_cannot_be_opened_gives_checkpoint_and_places_back(tmp_path: Path) -> None:
    def fail() -> Any:
        raise ab.EngineError("no Java")

    flow = ab.Flow("test")
    flow.read(ab.memory(FRAME)).key_by("key").agg(rows=ab.count()).write(ab.parquet(tmp_path / "out"))
    for _ in range(2):
        with pytest.raises(ab.EngineError, match="no Java"):
            flow.start_on(fail, tmp_path / "state")
    flow.check(checkpoint=tmp_path / "state")
    assert ab.active() == ()
