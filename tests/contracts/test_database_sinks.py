"""What every sink to a server must do: a batch is there whole and once, whatever breaks in between."""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors.sink_ownership import ExclusiveSink
from anabranch.errors import SinkError
from contracts.database_sinks import (
    SCHEMA,
    DeltaSubject,
    KafkaSubject,
    MariadbSubject,
    PostgresSubject,
    RedisSubject,
    Stage,
    Subject,
    context,
    make_rows,
    rows_of,
)
from servers import mariadb as mariadb_server
from servers import postgres as postgres_server

KINDS = ("postgres", "mariadb", "redis", "delta", "kafka")
# Messages of Kafka stay.
THAT_REPLACE_ROWS = ("postgres", "mariadb", "redis", "delta")
# Versions of a Delta table bear no epoch; the batch's number keeps drivers apart.
THAT_KNOW_EPOCHS = ("postgres", "mariadb", "redis", "kafka")
WITH_A_PASSWORD = ("postgres", "mariadb")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    match request.param:
        case "postgres":
            server = request.getfixturevalue("postgres")
            yield PostgresSubject(server, secret=postgres_server.PASSWORD)
        case "mariadb":
            yield MariadbSubject(request.getfixturevalue("mariadb"), secret=mariadb_server.PASSWORD)
        case "redis":
            yield RedisSubject(request.getfixturevalue("redis_server"))
        case "delta":
            made = DeltaSubject(tmp_path)
            yield made
            with contextlib.suppress(AttributeError):
                made.undo()
        case _:
            yield KafkaSubject(request.getfixturevalue("kafka"))


def test_what_is_published_is_there_once_however_often_it_is_published(subject: Subject, stage: Stage) -> None:
    sink = subject.opened()
    assert isinstance(sink, ExclusiveSink)
    first = stage(sink, make_rows(1000), make_rows(1003))
    sink.publish(0, first, context())
    sink.publish(0, first, context())
    second = stage(sink, make_rows(1006))
    sink.publish(1, second, context())
    assert subject.rows() == rows_of(make_rows(1000, 9))
    # Another driver, after a crash: it knows only what the place says.
    again = subject.make()
    again.check(SCHEMA)
    again.claim("test", 1)
    again.publish(1, second, context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 9))
    again.publish(2, stage(again, make_rows(1009)), context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 12))


def test_batches_without_rows_change_nothing_and_do_no_harm(subject: Subject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, [], context())
    sink.publish(1, stage(sink, make_rows(1000, 0)), context())
    sink.publish(2, stage(sink, make_rows(1000)), context())
    sink.publish(3, [], context())
    again = subject.make()
    again.check(SCHEMA)
    again.claim("test", 3)
    again.publish(4, stage(again, make_rows(1003)), context())
    assert subject.rows() == rows_of(make_rows(1000, 6))


@pytest.mark.parametrize("subject", THAT_REPLACE_ROWS, indirect=True)
def test_a_later_row_of_a_key_takes_the_place_of_the_earlier_one(subject: Subject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000), make_rows(1002, shift=1.0)), context())
    assert subject.rows() == rows_of(make_rows(1000, 2), make_rows(1002, 3, shift=1.0))
    sink.publish(1, stage(sink, make_rows(1001, 1, shift=7.0)), context())
    assert subject.rows() == rows_of(make_rows(1000, 1), make_rows(1001, 1, shift=7.0), make_rows(1002, 3, shift=1.0))


def test_a_transaction_that_went_through_unheard_is_not_done_twice(subject: Subject, stage: Stage) -> None:
    sink = subject.opened(**({"mode": "append", "keys": ()} if isinstance(subject, DeltaSubject) else {}))
    sink.publish(0, stage(sink, make_rows(1000)), context())
    subject.lose_the_answer(sink)
    sink.publish(1, stage(sink, make_rows(1003)), context())
    assert subject.rows() == rows_of(make_rows(1000, 6))
    sink.publish(2, stage(sink, make_rows(1006)), context())
    assert subject.rows() == rows_of(make_rows(1000, 9))


def test_later_batches_than_the_checkpoints_are_refused(subject: Subject, stage: Stage) -> None:
    sink = subject.opened()
    for batch in range(3):
        sink.publish(batch, stage(sink, make_rows(1000 + 3 * batch)), context())
    for last_batch in (None, 0, 1):
        other = subject.make()
        other.check(SCHEMA)
        with pytest.raises(SinkError, match="up to batch 2, but the checkpoint"):
            other.claim("test", last_batch)
    other = subject.make()
    other.check(SCHEMA)
    other.claim("test", 2)


def test_another_flows_place_is_refused_unless_places_may_be_shared(subject: Subject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000)), context())
    other = subject.make()
    other.check(SCHEMA)
    if subject.exclusive:
        with pytest.raises(SinkError, match="'test'"):
            other.claim("other", None)
    else:
        other.claim("other", None)


@pytest.mark.parametrize("subject", THAT_KNOW_EPOCHS, indirect=True)
def test_an_older_driver_is_refused(subject: Subject, stage: Stage) -> None:
    old, new = subject.opened(), subject.make()
    staged = stage(old, make_rows(1000))
    old.publish(0, staged, context(epoch=1))
    new.check(SCHEMA)
    new.claim("test", 0)
    new.publish(1, stage(new, make_rows(1003)), context(epoch=2))
    with pytest.raises(SinkError, match=r"newer driver|another driver"):
        old.publish(2, stage(old, make_rows(1006)), context(epoch=1))
    assert subject.rows() == rows_of(make_rows(1000, 6))


@pytest.mark.parametrize("subject", THAT_KNOW_EPOCHS, indirect=True)
def test_an_older_driver_whose_connection_broke_does_not_disturb_the_newer_one(subject: Subject, stage: Stage) -> None:
    old, new = subject.opened(), subject.make()
    old.publish(0, stage(old, make_rows(1000)), context(epoch=1))
    new.check(SCHEMA)
    new.claim("test", 0)
    new.publish(1, stage(new, make_rows(1003)), context(epoch=2))
    old.close()
    with pytest.raises(SinkError, match="newer driver"):
        old.publish(1, stage(old, make_rows(1003)), context(epoch=1))
    new.publish(2, stage(new, make_rows(1006)), context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 9))


@pytest.mark.parametrize("subject", WITH_A_PASSWORD, indirect=True)
def test_the_password_shows_nowhere(subject: Subject, caplog: pytest.LogCaptureFixture) -> None:
    assert subject.secret is not None
    sink = subject.opened()
    shown = [repr(sink), str(sink), sink.label, sink.place, caplog.text]
    assert not any(subject.secret in text for text in shown)
    assert subject.secret.encode() not in pickle.dumps(sink)


def test_the_bytes_of_equal_rows_are_equal(subject: Subject) -> None:
    sink = subject.make()
    copy = pickle.loads(pickle.dumps(sink))
    assert copy.label == sink.label
    assert sink.encode(make_rows(1000)) == copy.encode(make_rows(1000))


def test_what_cannot_be_taken_back_is_said(subject: Subject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000)), context())
    with pytest.raises(SinkError, match=r"stay|keeps|RESTORE"):
        sink.retract(0)


class TestFaults:
    """Servers that are disturbed, each the test's own."""

    @pytest.fixture(params=["postgres", "mariadb", "redis", "kafka"])
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        server = request.getfixturevalue(f"own_{request.param}")
        kinds = {"postgres": PostgresSubject, "mariadb": MariadbSubject, "redis": RedisSubject, "kafka": KafkaSubject}
        made: Subject = kinds[request.param](server)
        return made

    def test_a_server_that_is_gone_or_hangs_is_waited_for_and_nothing_is_lost_or_doubled(
        self, subject: Subject, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "anabranch")
        sink = subject.opened()
        sink.publish(0, stage(sink, make_rows(1000)), context())
        subject.server.stop()
        subject.server.start()
        sink.publish(1, stage(sink, make_rows(1003)), context())
        subject.server.kill()
        later = threading.Timer(subject.outage_seconds, subject.server.start)
        later.start()
        sink.publish(2, stage(sink, make_rows(1006)), context())
        later.join()
        assert "is out of reach" in caplog.text
        assert caplog.text.count("waiting for it") <= 2
        subject.server.pause()
        later = threading.Timer(1.0, subject.server.resume)
        later.start()
        sink.publish(3, stage(sink, make_rows(1009)), context())
        later.join()
        assert subject.rows() == rows_of(make_rows(1000, 12))

    def test_patience_ends(self, subject: Subject, stage: Stage) -> None:
        sink = subject.opened(patience_seconds=subject.short_patience_seconds)
        staged: Any = stage(sink, make_rows(1000))
        subject.server.kill()
        with pytest.raises(SinkError, match=r"out of reach .*start again$"):
            sink.publish(0, staged, context())
        subject.server.start()
        sink.publish(0, staged, context())
        assert subject.rows() == rows_of(make_rows(1000))
