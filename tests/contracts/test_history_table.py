"""The history of a flow in PostgreSQL: what the checkpoint tells, each event once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors.databases.history_table import TABLE, HistoryCopy
from anabranch.engine.faults import Killed, killed_at
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model.events import BatchEvent, StartEvent
from anabranch.state import open_store
from anabranch.state.event_files import read_history
from anabranch.state.event_log import EventLog
from servers.postgres import PostgresServer
from unit.cli.builders import batch

COLUMNS = "number, epoch, kind, batch, event"


def rows_of(server: PostgresServer, checkpoint: Path) -> list[Any]:
    return server.execute(f"SELECT {COLUMNS} FROM {TABLE} WHERE checkpoint = %s ORDER BY number", str(checkpoint))


def told_by(checkpoint: Path) -> list[Any]:
    return [
        (one.number, one.epoch, one.event.kind, one.event.batch, json.loads(json.dumps(one.to_json())))
        for one in read_history(open_store(checkpoint))
    ]


def open_run(checkpoint: Path, url: str) -> LocalRun:
    flow = ab.Flow("copied")
    frames = [pl.DataFrame({"key": [1, 2, number]}) for number in range(4)]
    counts = flow.read(ab.memory(*frames, max_frames=1)).key_by("key").agg(rows=ab.count())
    # A batch that was committed and not seen to be published is published again, where it was.
    counts.write(ab.parquet(str(checkpoint.with_name(f"{checkpoint.name}-results"))))
    return LocalRun(flow, make_settings(checkpoint=str(checkpoint), history_to=url, takeover=True))


def test_runs_that_are_killed_and_started_again_leave_the_whole_history_in_the_table(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    run = open_run(tmp_path, postgres.url)
    run.step()
    run.close()
    assert rows_of(postgres, tmp_path) == told_by(tmp_path)
    run = open_run(tmp_path, postgres.url)
    with killed_at("after-publish"), pytest.raises(Killed):
        run.step()
    run.abandon()
    run = open_run(tmp_path, postgres.url)
    while run.step() is not None:
        pass
    run.close()
    assert rows_of(postgres, tmp_path) == told_by(tmp_path)
    assert [row[3] for row in rows_of(postgres, tmp_path) if row[2] == "batch"] == [0, 1, 2, 3]


def test_copying_twice_or_by_two_drivers_leaves_each_event_once_and_the_later_driver_is_right(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    old = EventLog(store, 1, lambda: None)
    old.add([StartEvent("here", 1, "0.1.0"), BatchEvent(batch(0))], 0.0)
    late = EventLog(store, 1, lambda: None)
    late.read_tail()
    late.add([BatchEvent(batch(1)), BatchEvent(batch(2))], 0.0)
    HistoryCopy(postgres.url, store, "copied", 0).copy()
    assert len(rows_of(postgres, tmp_path)) == 4
    # The newer driver saw nothing of the last two: what it tells has their numbers.
    for entry in store.list("history")[1:]:
        store.delete([entry.name])
    new = EventLog(store, 2, lambda: None)
    (started,) = new.add([StartEvent("there", 2, "0.1.0", batch=0)], 1.0)
    new.add([BatchEvent(batch(1)), BatchEvent(batch(2))], 1.0)
    copy = HistoryCopy(postgres.url, store, "copied", started.number)
    for _ in range(2):
        copy.copy()
        HistoryCopy(postgres.url, store, "copied", started.number).copy()
    assert rows_of(postgres, tmp_path) == told_by(tmp_path)


def test_a_server_that_is_away_stops_nothing_and_gets_all_of_it_later(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    own_postgres.stop()
    run = open_run(tmp_path, own_postgres.url)
    run.step()
    run.step()
    run.close()
    own_postgres.start()
    run = open_run(tmp_path, own_postgres.url)
    run.step()
    run.close()
    assert rows_of(own_postgres, tmp_path) == told_by(tmp_path)


def test_what_is_no_database_is_refused_before_the_flow_starts(tmp_path: Path) -> None:
    with pytest.raises(ab.FlowError, match="history_to: a URL such as postgresql://"):
        make_settings(checkpoint=str(tmp_path), history_to="mysql://host/db")
