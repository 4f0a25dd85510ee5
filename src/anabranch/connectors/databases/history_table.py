"""A copy of a flow's history in PostgreSQL: a thread brings over what the table lacks, and no batch waits for it."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from anabranch.connectors.addresses import show_address
from anabranch.connectors.databases.addresses import fill_in
from anabranch.connectors.databases.postgres_database import PostgresDatabase
from anabranch.connectors.databases.transactions import HeldConnection
from anabranch.connectors.retry import ServerAway
from anabranch.errors import AnabranchError
from anabranch.model.events import HistoryRecord
from anabranch.state.event_files import read_history
from anabranch.state.store import Store

TABLE = "anabranch_history"
COPY_SECONDS = 5.0
"""So often the history is looked at: a file of it is read each time."""
LAST_COPY_SECONDS = 5.0
"""So long a run that ends waits for the last events; the next one brings over what is missing."""
_ROWS_AT_ONCE = 500

logger = logging.getLogger("anabranch")


class HistoryDatabase(PostgresDatabase):
    """The table of events: those of a checkpoint have its URL and a number, and each is there once."""

    def prepare(self) -> None:
        """Make the table unless it is there."""
        if self._exists(TABLE):
            return
        # Two flows may come here at the same moment; IF NOT EXISTS alone would let one of them fail.
        self._run(f"SELECT pg_advisory_xact_lock(hashtext('{TABLE}'))")
        self._run(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (checkpoint text NOT NULL, number bigint NOT NULL, "
            "flow text NOT NULL, epoch bigint NOT NULL, at timestamptz NOT NULL, kind text NOT NULL, batch bigint, "
            "operator text, event jsonb NOT NULL, PRIMARY KEY (checkpoint, number))"
        )

    def last_number(self, checkpoint: str) -> int:
        """Return the number of the last event that is there; -1 if there is none."""
        ((number,),) = self._run(f"SELECT coalesce(max(number), -1) FROM {TABLE} WHERE checkpoint = %s", checkpoint)
        return int(number)

    def write_events(self, checkpoint: str, flow: str, records: Sequence[HistoryRecord]) -> None:
        """Write events; of two drivers that told of the same number, the later one is right."""
        changes = ", ".join(
            f"{name} = EXCLUDED.{name}" for name in ("flow", "epoch", "at", "kind", "batch", "operator")
        )
        with self._connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {TABLE} (checkpoint, number, flow, epoch, at, kind, batch, operator, event) "
                "VALUES (%s, %s, %s, %s, to_timestamp(%s), %s, %s, %s, %s) ON CONFLICT (checkpoint, number) "
                f"DO UPDATE SET {changes}, event = EXCLUDED.event WHERE {TABLE}.epoch < EXCLUDED.epoch",
                [_row(checkpoint, flow, record) for record in records],
            )


class HistoryCopy:
    """Follows the history of a checkpoint, and copies it; whatever goes wrong, the flow goes on."""

    def __init__(self, url: str, store: Store, flow: str, first_number: int) -> None:
        """``first_number``: that of the run's first event; from there on, the table may have another driver's."""
        self._url = url
        self._store = store
        self._flow = flow
        self._first_number = first_number
        self._place = f"{show_address(url)} {TABLE}"
        self._position: int | None = None
        self._held: HeldConnection[HistoryDatabase] = HeldConnection()
        self._ending = threading.Event()
        self._is_late = False
        self._thread = threading.Thread(target=self._follow, daemon=True, name="anabranch-history")

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def stop(self) -> None:
        """Copy what is left, unless that takes long, and give the connection back."""
        self._ending.set()
        self._thread.join(LAST_COPY_SECONDS)

    def copy(self) -> None:
        """Bring over what the table lacks, in transactions of some hundred events."""
        if self._position is None:
            self._position = min(self._in_transaction(self._find_last), self._first_number - 1)
        after = self._position if self._position >= 0 else None
        events = read_history(self._store, after)
        while records := list(islice(events, _ROWS_AT_ONCE)):
            self._in_transaction(partial(self._write, records=records))
            self._position = records[-1].number

    # -- inside ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while True:
            is_last = self._ending.wait(0 if self._position is None and not self._is_late else COPY_SECONDS)
            try:
                self.copy()
                if self._is_late:
                    logger.warning("%s is back, and has the whole history", self._place)
                self._is_late = False
            except (ServerAway, AnabranchError, OSError) as error:
                if not self._is_late:
                    logger.warning("the history cannot be copied to %s (%s); the flow goes on", self._place, error)
                self._is_late = True
            if is_last:
                break
        with contextlib.suppress(Exception):
            self._held.close()

    def _in_transaction(self, act: Any) -> Any:
        return self._held.run(lambda: HistoryDatabase(fill_in(self._url)), act, self._place, TABLE)

    def _find_last(self, database: HistoryDatabase) -> int:
        database.prepare()
        return database.last_number(self._store.url)

    def _write(self, database: HistoryDatabase, records: Sequence[HistoryRecord]) -> None:
        database.write_events(self._store.url, self._flow, records)


def _row(checkpoint: str, flow: str, record: HistoryRecord) -> tuple[Any, ...]:
    event = record.event
    # PostgreSQL's texts cannot hold the letter with the number 0.
    text = json.dumps(record.to_json()).replace("\\u0000", "\\ufffd")
    operator = getattr(event, "operator", None)
    return checkpoint, record.number, flow, record.epoch, record.at, event.kind, event.batch, operator, text
