"""Drivers that fail, die or pause at any line of a publication, and a newer one that goes on meanwhile.

A step is a line of the connectors' code as ``publish`` runs it, so that no step is forgotten, whatever sinks become.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl

from anabranch.connectors import foreach, json_lines, parquet, to_memory
from anabranch.connectors.retry import ServerAway
from anabranch.connectors.sink_ownership import TakenOver, claim_places, close_sinks
from contracts.database_sinks import (
    SCHEMA,
    DeltaSubject,
    KafkaSubject,
    MariadbSubject,
    PostgresSubject,
    RedisSubject,
    Stage,
    make_rows,
)
from contracts.test_global_stores import Opened as OpenedStore
from contracts.test_sinks import FakeSpark

FLOW = "test"
BATCHES = 4
DISTURBED = 1
"""The batch that is disturbed: one is published before it, others come after it."""
LONGEST_SECONDS = 120.0
_PACKAGE, _ON_THE_WAY = "/anabranch/", ("connectors/", "state/durable_files.py", "state/objects.py")
"""What publishes, and what it writes files and objects with."""


class Killed(BaseException):
    """The driver is dead at this line."""


@dataclass
class Place:
    """A place of its own that drivers write to, and what a reader sees there."""

    make: Callable[[], Any]
    """Return a checked sink, as another driver would make it."""
    stage: Callable[[Any, int], Any]
    """Stage a batch's results."""
    rows: Callable[[], list[Any]]
    locked_seconds: float | None = None
    """How long a newer driver is given while the older one may hold a lock; None: nobody waits for anybody."""
    take_away: Callable[[], None] = lambda: None
    """Let a reader take away what it has seen, where readers do so."""
    lease: int = 0
    """The epoch of the newest driver."""
    staged: list[Any] = field(default_factory=list)
    """The batches' staged files, which all drivers share."""


@dataclass
class Driver:
    """One driver of the flow."""

    place: Place
    epoch: int
    last_batch: int | None = None

    def __post_init__(self) -> None:
        self.place.lease = max(self.place.lease, self.epoch)
        self.sink = self.place.make()
        if not self.place.staged:
            self.place.staged = [self.place.stage(self.sink, batch) for batch in range(BATCHES)]
        claim_places([self.sink], FLOW, self.last_batch)

    def publish(self, *batches: int) -> None:
        """Publish batches as the engine does."""
        for batch in batches:
            context = {"flow": FLOW, "epoch": 1, "driver_epoch": self.epoch, "spark": FakeSpark()}
            try:
                self.sink.publish(batch, self.place.staged[batch], context)
            except TakenOver:
                if self.epoch < self.place.lease:
                    raise
                self.sink.publish(batch, self.place.staged[batch], context)

    def close(self) -> None:
        """Let go of what a process that ends lets go of."""
        close_sinks([self.sink])


@contextlib.contextmanager
def stepping(reach: Callable[[int, str], None]) -> Iterator[None]:
    """Call ``reach`` with the number and the name of every step that this thread takes."""
    taken = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal taken
        module = frame.f_code.co_filename.rpartition(_PACKAGE)[2]
        if not module.startswith(_ON_THE_WAY):
            return None
        if event == "line":
            taken += 1
            reach(taken, f"{module}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def steps_of_start(place: Place) -> list[str]:
    """Return the steps of a driver's start."""
    first, steps = Driver(place, 1), []
    first.publish(*range(DISTURBED))
    first.close()
    with stepping(lambda _, step: steps.append(step)):
        Driver(place, 2, DISTURBED - 1).close()
    return steps


def run_undisturbed(place: Place) -> tuple[list[Any], list[str]]:
    """Return what a reader sees after all batches, and the steps of the one that is to be disturbed."""
    driver, steps = Driver(place, 1), []
    driver.publish(*range(DISTURBED))
    with stepping(lambda _, step: steps.append(step)):
        driver.publish(DISTURBED)
    driver.publish(*range(DISTURBED + 1, BATCHES))
    driver.close()
    return place.rows(), steps


def run_killed(place: Place, at: int) -> list[Any]:
    """Return what a reader sees if the driver dies at a step and another one takes over."""
    old = Driver(place, 1)
    old.publish(*range(DISTURBED))

    def die(number: int, step: str) -> None:
        if number == at:
            raise Killed(step)

    with contextlib.suppress(Killed), stepping(die):
        old.publish(DISTURBED)
    old.close()
    del old
    gc.collect()
    _go_on(Driver(place, 2, DISTURBED), DISTURBED)
    return place.rows()


def run_failing(place: Place, at: int, failure: Callable[[str], Exception]) -> list[Any]:
    """Return what a reader sees if something fails at a step, and the same process starts the flow again."""
    driver = Driver(place, 1)
    driver.publish(*range(DISTURBED))

    def fail(number: int, step: str) -> None:
        if number == at:
            raise failure(f"injected at {step}")

    try:
        with stepping(fail):
            driver.publish(DISTURBED)
    except Exception:
        claim_places([driver.sink], FLOW, DISTURBED)
        driver.epoch = 2
        driver.publish(DISTURBED)
    _go_on(driver, DISTURBED + 1)
    return place.rows()


def run_paused(place: Place, at: int, *, broken: bool, restarted: bool) -> list[Any]:
    """Return what a reader sees if the driver pauses at a step while another one takes over and goes on.

    The older one then goes on, too, and may end with an error; the newer one must not. ``broken``: connections of the
    older one do not survive its pause. ``restarted``: the newer one is started again afterwards.
    """
    old = Driver(place, 1)
    old.publish(*range(DISTURBED))
    newer: list[Driver] = []
    failures: list[BaseException] = []

    def take_over() -> None:
        try:
            newer.append(Driver(place, 2, DISTURBED))
            newer[0].publish(DISTURBED, DISTURBED + 1)
            place.take_away()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=take_over)

    def pause(number: int, step: str) -> None:
        if number == at:
            thread.start()
            thread.join(LONGEST_SECONDS if place.locked_seconds is None else place.locked_seconds)
            if broken:
                raise ServerAway(f"broken at {step}")

    # Whatever it hears: its lease is gone, and it ends.
    with contextlib.suppress(Exception), stepping(pause):
        old.publish(DISTURBED)
    old.close()
    thread.join(LONGEST_SECONDS)
    assert not thread.is_alive(), "the newer driver still waits for the older one"
    if failures:
        raise failures[0]
    if restarted:
        newer[0].close()
        _go_on(Driver(place, 3, DISTURBED + 1), DISTURBED + 1)
    else:
        _go_on(newer[0], DISTURBED + 2)
    return place.rows()


def run_paused_start(place: Place, at: int) -> list[Any]:
    """Return what a reader sees if a driver pauses at a step of its start, and another one takes over and goes on."""
    first = Driver(place, 1)
    first.publish(*range(DISTURBED))
    first.close()
    newer: list[Driver] = []
    failures: list[BaseException] = []

    def take_over() -> None:
        try:
            newer.append(Driver(place, 3, DISTURBED - 1))
            newer[0].publish(DISTURBED)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=take_over)

    def pause(number: int, step: str) -> None:
        if number == at:
            thread.start()
            thread.join(LONGEST_SECONDS if place.locked_seconds is None else place.locked_seconds)

    # Whatever it hears: its lease is gone, and it ends.
    with contextlib.suppress(Exception), stepping(pause):
        Driver(place, 2, DISTURBED - 1).close()
    thread.join(LONGEST_SECONDS)
    assert not thread.is_alive(), "the newer driver still waits for the older one"
    if failures:
        raise failures[0]
    _go_on(newer[0], DISTURBED + 1)
    return place.rows()


def _go_on(driver: Driver, first: int) -> None:
    driver.publish(*range(first, BATCHES))
    driver.close()


# -- places ------------------------------------------------------------------------------------------------------------


def results_of(batch: int) -> list[pl.DataFrame]:
    """Return a batch's results, of two slots: keys come again with other values, and new ones come."""
    return [make_rows(1000, 3, shift=batch), make_rows(1003 + batch, 2, shift=batch)]


def _checked(sink: Any) -> Any:
    sink.check(SCHEMA)
    return sink


def _in_folder(
    folder: Path,
    make: Callable[[Path], Any],
    read: Callable[[Path], pl.DataFrame],
    *,
    taken_away: bool = False,
) -> Place:
    out = folder / f"out-{uuid.uuid4().hex[:12]}"
    stage = Stage(folder)
    taken: list[Any] = []

    def take_away() -> None:
        for path in out.glob("part-*"):
            taken.extend(read(path).rows())
            path.unlink()

    def rows() -> list[Any]:
        return sorted([*taken, *(row for path in out.glob("part-*") for row in read(path).rows())], key=repr)

    return Place(
        lambda: _checked(make(out)),
        lambda sink, batch: stage(sink, *results_of(batch)),
        rows,
        take_away=take_away if taken_away else lambda: None,
    )


def _called_back(folder: Path) -> Place:
    # What the guide advises: writing under the batch's number.
    seen: dict[int, list[Any]] = {}
    stage = Stage(folder)
    return Place(
        lambda: _checked(foreach(lambda frame, batch: seen.update({batch: frame.rows()}))),
        lambda sink, batch: stage(sink, *results_of(batch)),
        lambda: sorted((row for rows in seen.values() for row in rows), key=repr),
    )


def _on_server(subject: Any, folder: Path, locked_seconds: float | None = None, **more: Any) -> Place:
    stage = Stage(folder)
    return Place(
        lambda: _checked(subject.make(**more)),
        lambda sink, batch: stage(sink, *results_of(batch)),
        lambda: sorted(subject.rows(), key=repr),
        locked_seconds,
    )


def _in_store(url: str, folder: Path, locked_seconds: float | None) -> Place:
    store = OpenedStore(url, folder, table=f"store_{uuid.uuid4().hex[:12]}")
    parts = [(1, "a", 200.0, 5, 1), (2, "b", 210.0, 6, 2)], [(1, "a", 190.0, 7, 3)]

    def stage(sink: Any, batch: int) -> Any:
        return store.stage(sink, batch, *parts, [(10 + batch, "c", 1.0 + batch, 1, 4)])

    return Place(store.sink, stage, lambda: sorted(map(str, store.rows())), locked_seconds)


LOCKED_SECONDS = 0.3
KINDS: dict[str, Callable[[Any, Path], Place]] = {
    "parquet": lambda _, folder: _in_folder(folder, parquet, pl.read_parquet),
    "parquet taken away": lambda _, folder: _in_folder(folder, parquet, pl.read_parquet, taken_away=True),
    "json": lambda _, folder: _in_folder(folder, json_lines, lambda path: pl.read_ndjson(path, schema=SCHEMA)),
    "memory": lambda _, folder: _in_folder(folder, to_memory, pl.read_ipc),
    "foreach": lambda _, folder: _called_back(folder),
    "delta append": lambda _, folder: _on_server(DeltaSubject(folder), folder, keys=()),
    "delta upsert": lambda _, folder: _on_server(DeltaSubject(folder), folder),
    "redis": lambda server, folder: _on_server(RedisSubject(server), folder),
    "postgres append": lambda server, folder: _on_server(PostgresSubject(server), folder, LOCKED_SECONDS, keys=()),
    "postgres upsert": lambda server, folder: _on_server(PostgresSubject(server), folder, LOCKED_SECONDS),
    "mariadb append": lambda server, folder: _on_server(MariadbSubject(server), folder, LOCKED_SECONDS, keys=()),
    "mariadb upsert": lambda server, folder: _on_server(MariadbSubject(server), folder, LOCKED_SECONDS),
    "kafka": lambda server, folder: _on_server(KafkaSubject(server), folder),
    "sqlite store": lambda _, folder: _in_store(f"sqlite:///{folder}/store.sqlite", folder, LOCKED_SECONDS),
    "redis store": lambda server, folder: _in_store(server.url, folder, None),
    "postgres store": lambda server, folder: _in_store(server.url, folder, LOCKED_SECONDS),
    "mariadb store": lambda server, folder: _in_store(server.url, folder, LOCKED_SECONDS),
}
SERVERS = {"redis": "redis_server", "postgres": "postgres", "mariadb": "mariadb", "kafka": "kafka"}


def find_server(kind: str, request: Any) -> Any:
    """Return the server that a kind of place needs, None if it needs none."""
    fixture = SERVERS.get(kind.partition(" ")[0])
    return None if fixture is None else request.getfixturevalue(fixture)
