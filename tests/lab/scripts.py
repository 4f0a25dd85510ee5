"""What scripts under test share: how they wait for executors, what they print of a flow, and how they end."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.spark.executors import list_executors


def tell_seen(run: Callable[[], object]) -> None:
    """Print ``seen`` and what was seen, as JSON; or all that is known of what went wrong."""
    try:
        print("seen", json.dumps(run()), flush=True)
    except Exception:
        # Spark has much more to say when it ends.
        print(traceback.format_exc(), flush=True)
        raise


@contextmanager
def leaving_on_errors() -> Iterator[None]:
    """Print ``failed`` and what went wrong in a line, and leave at once: Spark waits for hosts that are cut off."""
    try:
        yield
    except Exception as error:
        print(f"failed {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        os._exit(3)


def wait_for_executors(spark: Any, count: int, patience_seconds: float) -> bool:
    """Wait until so many are there, but not for ever; say whether they are."""
    deadline = time.monotonic() + patience_seconds
    while len(list_executors(spark)) < count:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def make_work(seconds_a_row: float) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a step that takes processor time for every row, however busy the machine is."""

    # A function within a function goes to executors whole: they need not find this module.
    def work(frame: pl.DataFrame) -> pl.DataFrame:
        until = time.thread_time() + frame.height * seconds_a_row
        while time.thread_time() < until:
            pass
        return frame

    return work


def run_until_end(flow: ab.Flow, folder: Path, **settings: Any) -> None:
    """Run a flow until as many rows are through as the file ``end`` says, once it is there.

    Prints ``batch <n> <rows> <hosts> <where state was read from>`` after every batch with rows, and ``done``.
    """
    rows_in = 0

    def report(progress: Any) -> None:
        nonlocal rows_in
        rows_in += progress.rows_in
        if progress.rows_in:
            there = sorted({task.host for task in progress.measures.tasks}) if progress.measures else []
            reads = sorted(progress.measures.run_reads) if progress.measures else []
            told = ",".join(there) or "nowhere", ",".join(reads) or "nowhere"
            print(f"batch {progress.batch} {progress.rows_in} {' '.join(told)}", flush=True)

    handle = flow.start(str(folder / "state"), on_progress=report, **settings)
    end = folder / "end"
    while handle.active and not (end.exists() and rows_in >= int(end.read_text() or sys.maxsize)):
        time.sleep(0.05)
    if handle.active:
        handle.stop()
    handle.wait()
    print("done", flush=True)


def counts_every_row_once(sink: Any, rows: pl.DataFrame) -> bool:
    """Say whether the last that a sink in memory got of every key is the number of its rows."""
    latest = sink.frame().group_by("key").agg(pl.col("rows").max()).sort("key")
    expected = rows.group_by("key").agg(pl.len().cast(pl.Int64).alias("rows")).sort("key")
    return bool(latest.equals(expected.select(latest.columns).cast(dict(latest.schema))))
