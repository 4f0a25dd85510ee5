"""What every store must do in which partial results meet."""

from __future__ import annotations

import contextlib
import math
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors.global_stores import GlobalStoreSink, sqlite
from anabranch.connectors.global_stores.sink import _open
from anabranch.errors import SinkError
from anabranch.model import HASH, ORDER, TIME, AggregateSpec, OperatorTime, StagedFile, WindowSpec
from anabranch.model.exchanges import StoreKernel
from anabranch.operators.kernels import make_kernel
from anabranch.routing import hash_keys

STORES = ("sqlite", "postgres", "mariadb", "redis")
FLOW = "low-voltage"
AGGREGATES = {
    "readings": ab.count(),
    "total": ab.sum("whole"),
    "lowest": ab.min("volts"),
    "average": ab.mean("volts"),
    "spread": ab.variance("volts"),
    "opening": ab.first("name"),
    "places": ab.approx_distinct("name"),
    "middle": ab.median("volts"),
}
TEN_SECONDS = WindowSpec("tumbling", 10_000_000, 10_000_000)
SCHEMA = {
    "sensor": pl.Int64(),
    "name": pl.String(),
    "volts": pl.Float64(),
    "whole": pl.Int64(),
    TIME: pl.Datetime("us"),
    ORDER: pl.Int64(),
}
Rows = Sequence[tuple[int, str, float | None, int, int]]


@dataclass
class Opened:
    """A store, and a flow's partial results on their way into it."""

    url: str
    folder: Path
    table: str = "alerts"

    def kernel(self, windowed: bool = True) -> StoreKernel:
        window, time = (TEN_SECONDS, TIME) if windowed else (None, TIME)
        return make_kernel(AggregateSpec(("sensor", "name"), AGGREGATES, window, time))  # type: ignore[return-value]

    def sink(self, windowed: bool = True) -> GlobalStoreSink:
        kernel = self.kernel(windowed)
        sink = ab.global_store(self.url, table=self.table).bound("agg", ("sensor", "name"), kernel, windowed)
        schema = kernel.output_schema({name: dtype for name, dtype in SCHEMA.items() if name != ORDER})
        sink.check({name: dtype for name, dtype in schema.items() if name != TIME})
        return sink

    def stage(self, sink: GlobalStoreSink, batch: int, *parts: Rows, windowed: bool = True) -> list[Any]:
        """Stage the rows of several readers."""
        kernel = self.kernel(windowed)
        staged = []
        for number, rows in enumerate(parts):
            timed = [
                (sensor, name, volts, whole, datetime(2026, 1, 1, 0, 0, second), number * 1000 + order)
                for order, (sensor, name, volts, whole, second) in enumerate(rows)
            ]
            frame = pl.DataFrame(timed, schema=SCHEMA, orient="row")
            combined = kernel.combine(kernel.prepare(frame, OperatorTime(batch)).frame)
            combined = combined.with_columns(hash_keys(combined, ("sensor", "name")).alias(HASH))
            partials = kernel.unite([kernel.by_window(combined, -(2**62))])
            path = self.folder / f"staged-{batch}-{number}.arrow"
            path.write_bytes(sink.encode(partials))
            staged.append((StagedFile(str(path), partials.height, path.stat().st_size, number), str(path)))
        return staged

    def publish(self, sink: GlobalStoreSink, batch: int, *parts: Rows, epoch: int = 1, windowed: bool = True) -> None:
        sink.publish(batch, self.stage(sink, batch, *parts, windowed=windowed), {"flow": FLOW, "epoch": epoch})

    def rows(self) -> list[dict[str, Any]]:
        found = ab.read_global_store(self.url, self.table)
        by = [name for name in ("window_start", "sensor", "name") if name in found.columns]
        return found.sort(by).to_dicts() if by else []

    def lose_everything(self) -> None:
        """Empty the store, mark and all."""
        if self.url.startswith("redis"):
            import redis

            redis.Redis.from_url(self.url).flushdb()
            return
        store: Any = _open(self.url)
        for table in ("alerts", "anabranch_commits"):
            if self.url.startswith("sqlite"):
                store._connection.execute(f"DROP TABLE {table}")
            else:
                store._run(f"DROP TABLE {table}")
        store.commit()
        store.close()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    if request.param == "sqlite":
        yield Opened(f"sqlite:///{tmp_path}/store.sqlite", tmp_path)
        return
    server = request.getfixturevalue({"redis": "redis_server"}.get(request.param, request.param))
    opened = Opened(server.url, tmp_path)
    with contextlib.suppress(Exception):
        # The test before may have left something, or nothing.
        opened.lose_everything()
    yield opened


def test_partial_results_of_all_readers_and_batches_meet_in_one_row(store: Opened) -> None:
    sink = store.sink()
    sink.claim(FLOW, None)
    store.publish(sink, 0, [(1, "a", 200.0, 5, 1), (1, "a", 210.0, 6, 2)], [(1, "a", 220.0, 7, 3), (2, "b", 1.5, 1, 4)])
    store.publish(sink, 1)
    store.publish(sink, 2, [(1, "a", 190.0, 8, 5), (1, "a", None, 2, 12)])
    rows = store.rows()
    assert [(row["sensor"], row["readings"], row["total"], row["lowest"]) for row in rows] == [
        (1, 4, 26, 190.0),
        (2, 1, 1, 1.5),
        (1, 1, 2, None),
    ]
    assert rows[0]["average"] == pytest.approx(205.0)
    assert rows[0]["spread"] == pytest.approx(166.6666666666)
    assert (rows[0]["opening"], rows[0]["places"]) == ("a", 1)
    assert rows[0]["window_start"].replace(tzinfo=None) == datetime(2026, 1, 1)
    assert rows[0]["window_end"].replace(tzinfo=None) == datetime(2026, 1, 1, 0, 0, 10)


def test_a_batch_that_is_published_again_changes_nothing(store: Opened) -> None:
    sink = store.sink()
    sink.claim(FLOW, None)
    for _ in range(3):
        store.publish(sink, 0, [(1, "a", 200.0, 5, 1)])
    assert [row["readings"] for row in store.rows()] == [1]


def test_another_driver_goes_on_where_the_last_one_was_killed(store: Opened) -> None:
    first = store.sink()
    first.claim(FLOW, None)
    store.publish(first, 0, [(1, "a", 200.0, 5, 1)])
    second = store.sink()
    second.claim(FLOW, 1)
    store.publish(second, 1, [(1, "a", 200.0, 5, 1)], epoch=2)
    assert [row["readings"] for row in store.rows()] == [2]
    with pytest.raises(SinkError, match="newer driver"):
        store.publish(first, 2, [(1, "a", 200.0, 5, 1)], epoch=1)


def test_running_aggregates_have_one_row_a_key(store: Opened) -> None:
    sink = store.sink(windowed=False)
    sink.claim(FLOW, None)
    for batch in range(3):
        store.publish(sink, batch, [(1, "a", 200.0, 5, 1), (2, "a", 1.0, 1, 1)], windowed=False)
    assert [(row["sensor"], row["readings"], row["total"]) for row in store.rows()] == [(1, 3, 15), (2, 3, 3)]


def test_keys_that_a_database_would_take_for_the_same_are_not(store: Opened) -> None:
    sink = store.sink()
    sink.claim(FLOW, None)
    names = ["a", "A", "a ", "ä", "", "a\n", "'", '"', "%s", "\\"]
    store.publish(sink, 0, [(1, name, 1.0, 1, 1) for name in names])
    store.publish(sink, 1, [(1, name, 1.0, 1, 1) for name in names])
    rows = store.rows()
    assert sorted(row["name"] for row in rows) == sorted(names)
    assert {row["readings"] for row in rows} == {2}


def test_numbers_keep_every_bit_on_their_way_through_the_store(store: Opened) -> None:
    sink = store.sink()
    sink.claim(FLOW, None)
    values = [0.1, 1e-308, 1.7976931348623157e308, -0.30000000000000004, 2.0**-1074]
    for batch in range(2):
        store.publish(sink, batch, [(number, "x", value, 2**61, 1) for number, value in enumerate(values)])
    rows = store.rows()
    assert [row["lowest"] for row in rows] == values
    assert [row["total"] for row in rows] == [2**62] * len(values)
    assert all(math.isclose(row["average"], value) for row, value in zip(rows[:2], values, strict=False))


def test_a_store_that_lost_its_data_stops_the_flow(store: Opened) -> None:
    sink = store.sink()
    sink.claim(FLOW, None)
    store.publish(sink, 0, [(1, "a", 200.0, 5, 1)])
    sink.close()
    store.lose_everything()
    fresh = store.sink()
    with pytest.raises(SinkError, match="lost results that were merged into it"):
        fresh.claim(FLOW, 0)
    # One that comes into being again under a running flow is not what it was, either.
    other = store.sink()
    other.claim(FLOW, None)
    with pytest.raises(SinkError, match="lost results that were merged into it"):
        store.publish(sink, 1, [(1, "a", 200.0, 5, 1)])


def test_a_table_of_another_flow_or_a_newer_one_is_refused(store: Opened) -> None:
    sink = store.sink()
    sink.claim(FLOW, None)
    store.publish(sink, 0, [(1, "a", 200.0, 5, 1)])
    with pytest.raises(SinkError, match="holds results of the flow"):
        store.sink().claim("other", None)
    with pytest.raises(SinkError, match="the checkpoint is new"):
        store.sink().claim(FLOW, None)


def test_what_was_merged_cannot_be_taken_back(store: Opened) -> None:
    with pytest.raises(SinkError, match="cannot take them out again"):
        store.sink().retract(3)


def test_tasks_get_no_password(store: Opened) -> None:
    copy = pickle.dumps(store.sink())
    assert b"a-secret" not in copy
    assert "a-secret" not in repr(store.sink()) + store.sink().label + store.sink().place


def test_a_table_that_does_not_exist_has_no_rows(store: Opened) -> None:
    assert ab.read_global_store(store.url, "nobody").is_empty()


@pytest.mark.parametrize("server", ["own_postgres", "own_mariadb", "own_redis"])
def test_a_server_that_is_restarted_is_waited_for_and_nothing_is_doubled(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    running = request.getfixturevalue(server)
    store = Opened(running.url, tmp_path)
    sink = store.sink()
    sink.claim(FLOW, None)
    store.publish(sink, 0, [(1, "a", 200.0, 5, 1)])
    running.stop()
    back = threading.Timer(1.0, running.start)
    back.start()
    store.publish(sink, 1, [(1, "a", 210.0, 6, 2)])
    back.join()
    assert [(row["readings"], row["total"]) for row in store.rows()] == [(2, 11)]


Make = Callable[[], GlobalStoreSink]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ab.global_store("oracle://host/db", table="x"), "SQLite or a URL of"),
        (lambda: ab.global_store("x.sqlite", table="no table; drop"), "is no table"),
    ],
)
def test_a_store_that_cannot_be_is_refused_at_once(make: Make, reason: str) -> None:
    with pytest.raises(SinkError, match=reason):
        make()


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_ids_that_are_no_set_stop_a_batch_before_anything_of_it_is_written(store: Opened) -> None:
    import redis

    sink = store.sink()
    sink.claim(FLOW, None)
    store.publish(sink, 0, [(1, "a", 200.0, 5, 1)])
    client = redis.Redis.from_url(store.url)
    ids = client.smembers("alerts:ids")
    client.set("alerts:ids", "something else")
    with pytest.raises(SinkError, match="alerts:ids in Redis holds a string"):
        store.publish(sink, 1, [(1, "a", 200.0, 5, 1), (2, "b", 200.0, 5, 1)])
    client.delete("alerts:ids")
    client.sadd("alerts:ids", *ids)
    again = store.sink()
    again.claim(FLOW, 1)
    store.publish(again, 1, [(1, "a", 200.0, 5, 1), (2, "b", 200.0, 5, 1)], epoch=2)
    assert [(row["sensor"], row["readings"]) for row in store.rows()] == [(1, 2), (2, 1)]


def test_a_sqlite_file_is_free_once_its_connection_is_closed_whoever_holds_a_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    url = f"sqlite:///{tmp_path}/store.sqlite"
    first = sqlite.SqliteStore(url)
    first.prepare_marks("results")
    # As the traceback of a statement that failed in the midst of its rows does.
    held = first._connection.execute("SELECT name FROM sqlite_master")
    held.fetchone()
    first.close()
    second = sqlite.SqliteStore(url)
    second.prepare_marks("results")
    assert second.lock_mark("results") is None
    second.close()
