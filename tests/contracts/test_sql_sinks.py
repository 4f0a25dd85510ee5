"""What the sinks to PostgreSQL and MariaDB do beyond the contract: tables, types, keys, rights."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.errors import SinkError
from contracts.database_sinks import (
    SCHEMA,
    MariadbSubject,
    PostgresSubject,
    Stage,
    Subject,
    context,
    make_rows,
    rows_of,
)
from servers import mariadb as mariadb_server
from servers import postgres as postgres_server

ALL_KINDS = pl.DataFrame(
    {
        "flag": [True, None, False],
        "tiny": pl.Series([-128, None, 127], dtype=pl.Int8),
        "small": pl.Series([0, None, 65_535], dtype=pl.UInt16),
        "whole": pl.Series([-(2**31), None, 2**31 - 1], dtype=pl.Int32),
        "big": pl.Series([-(2**63), None, 2**63 - 1], dtype=pl.Int64),
        "huge": pl.Series([0, None, 2**64 - 1], dtype=pl.UInt64),
        "real": pl.Series([0.1, None, -1e300], dtype=pl.Float64),
        "text": ["", None, "ünï\\N'\"\t\r\n,;"],
        "bytes": [b"", None, bytes(range(256))],
        "day": [date(1, 1, 1), None, date(9999, 12, 31)],
        "hour": [time(0, 0), None, time(23, 59, 59, 999_999)],
        "moment": pl.Series(
            [datetime(1970, 1, 1), None, datetime(2026, 5, 6, 7, 8, 9, 123_456)], dtype=pl.Datetime("us")
        ),
        "zoned": pl.Series(
            [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(2026, 7, 1, 12, tzinfo=UTC)],
            dtype=pl.Datetime("us", "UTC"),
        ).dt.convert_time_zone("Asia/Shanghai"),
        "span": pl.Series([timedelta(0), None, timedelta(days=-3, microseconds=7)], dtype=pl.Duration("us")),
        "money": pl.Series([Decimal("0.01"), None, Decimal("-12345678901234.56")], dtype=pl.Decimal(18, 2)),
        "list": [[1, None], None, []],
        "record": [{"a": 1, "b": 'x"y'}, None, {"a": None, "b": None}],
        "word": pl.Series(["a", None, "b"], dtype=pl.Categorical),
    },
    schema_overrides={"list": pl.List(pl.Int64)},
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(params=["postgres", "mariadb"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    kind = {"postgres": PostgresSubject, "mariadb": MariadbSubject}[request.param]
    yield kind(request.getfixturevalue(request.param), secret=postgres_server.PASSWORD)


def is_postgres(subject: Subject) -> bool:
    return isinstance(subject, PostgresSubject)


def claimed(subject: Subject, **more: Any) -> Any:
    return subject.opened(**more)


def test_values_of_every_type_come_back_as_they_went_in(subject: Subject, stage: Stage) -> None:
    rows = ALL_KINDS.with_row_index("number").with_columns(pl.col("number").cast(pl.Int64))
    sink = subject.make(keys=("number",))
    sink.check(dict(rows.schema))
    sink.claim("test", None)
    sink.publish(0, stage(sink, rows), context())
    first, empty, last = subject.server.execute(f"SELECT * FROM {subject.name} ORDER BY number")
    found = dict(zip(rows.columns, last, strict=True))
    assert empty[1:] == (None,) * (len(rows.columns) - 1)
    for column in ("tiny", "small", "whole", "big", "huge", "real", "text", "bytes", "day", "moment", "money", "word"):
        expected = rows.get_column(column)
        assert found[column] == expected[2], column
        assert dict(zip(rows.columns, first, strict=True))[column] == expected[0], column
    assert bool(found["flag"]) is False
    if is_postgres(subject):
        assert found["zoned"] == datetime(2026, 7, 1, 12, tzinfo=UTC)
        assert found["span"] == timedelta(days=-3, microseconds=7)
        assert (first[rows.columns.index("list")], found["list"]) == ([1, None], [])
        assert first[rows.columns.index("record")] == {"a": 1, "b": 'x"y'}
        assert found["hour"] == time(23, 59, 59, 999_999)
    else:
        assert found["zoned"] == datetime(2026, 7, 1, 12)
        assert found["span"] == timedelta(days=-3, microseconds=7) // timedelta(microseconds=1)
        assert found["list"] == "[]"
        assert first[rows.columns.index("record")] == '{"a":1,"b":"x\\"y"}'
    # The table that was made fits what it was made for.
    again = subject.make(keys=("number",))
    again.check(dict(rows.schema))
    again.claim("test", 0)


def test_numbers_that_are_none_are_kept_or_become_null(subject: Subject, stage: Stage) -> None:
    sink = claimed(subject)
    rows = make_rows(1000).with_columns(total=pl.Series([float("nan"), float("inf"), -0.5]))
    sink.publish(0, stage(sink, rows), context())
    totals = [row[3] for row in subject.rows()]
    assert [str(total) for total in totals] == (
        ["nan", "inf", "-0.5"] if is_postgres(subject) else ["None", "None", "-0.5"]
    )


def test_rows_whose_key_has_nulls_are_replaced_too(subject: Subject, stage: Stage) -> None:
    sink = subject.make(keys=("sensor", "name"))
    sink.check(SCHEMA)
    sink.claim("test", None)
    for batch, shift in enumerate((0.0, 1.0)):
        sink.publish(batch, stage(sink, make_rows(1000, 4, shift=shift)), context())
    assert subject.rows() == rows_of(make_rows(1000, 4, shift=1.0))


def test_keys_that_differ_in_case_or_in_spaces_are_different(subject: Subject, stage: Stage) -> None:
    sink = subject.make(keys=("name",))
    sink.check(SCHEMA)
    sink.claim("test", None)
    rows = make_rows(1000, 4).with_columns(name=pl.Series(["a", "A", "a ", "ä"]))
    sink.publish(0, stage(sink, rows), context())
    assert len(subject.rows()) == 4


def test_appended_rows_all_stay_and_bear_their_batch(subject: Subject, stage: Stage) -> None:
    sink = subject.make(keys=(), batch_column="batch")
    sink.check(SCHEMA)
    sink.claim("test", None)
    for batch in range(3):
        sink.publish(batch, stage(sink, make_rows(1000, 2)), context())
    count = f"SELECT batch, count(*) FROM {subject.name} GROUP BY batch ORDER BY batch"
    assert subject.server.execute(count) == [(0, 2), (1, 2), (2, 2)]
    sink.retract(0)
    assert subject.server.execute(count) == [(0, 2)]
    # The same batches come anew after a rollback.
    again = subject.make(keys=(), batch_column="batch")
    again.check(SCHEMA)
    again.claim("test", 0)
    again.publish(1, stage(again, make_rows(1000, 1)), context(epoch=2))
    assert subject.server.execute(count) == [(0, 2), (1, 1)]


def test_appended_rows_without_their_batch_are_not_taken_back_in_part(subject: Subject, stage: Stage) -> None:
    sink = subject.make(keys=())
    sink.check(SCHEMA)
    sink.claim("test", None)
    sink.publish(0, stage(sink, make_rows(1000)), context())
    with pytest.raises(SinkError, match=r"batch_column.*anabranch_commits"):
        sink.retract(-1)


def test_replaced_rows_are_overwritten_after_a_rollback(subject: Subject, stage: Stage) -> None:
    sink = claimed(subject)
    for batch in range(3):
        sink.publish(batch, stage(sink, make_rows(1000, shift=batch)), context())
    with pytest.raises(SinkError, match="overwritten by key"):
        sink.retract(0)
    again = subject.make()
    again.check(SCHEMA)
    again.claim("test", 0)
    again.publish(1, stage(again, make_rows(1000, shift=9.0)), context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, shift=9.0))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("sensor bigint, name text, total double precision, UNIQUE (sensor)", r"no column 'window_end'.*ADD COLUMN"),
        (
            "sensor bigint, name text, window_end timestamp, total varchar(9), UNIQUE (sensor)",
            r"'total'.*Float64.*double",
        ),
        (
            "sensor bigint, name varchar(99), window_end {time}, total double precision",
            r"no unique index on \(sensor\)",
        ),
        (
            "sensor bigint, name varchar(99), window_end {time}, total double precision, "
            "site int NOT NULL, UNIQUE (sensor)",
            r"wants values for 'site'",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_the_first_batch(
    subject: Subject, columns: str, complaint: str
) -> None:
    time_type = "timestamp" if is_postgres(subject) else "datetime(6)"
    subject.server.execute(f"CREATE TABLE {subject.name} ({columns.replace('{time}', time_type)})")
    sink = subject.make()
    sink.check(SCHEMA)
    with pytest.raises(SinkError, match=complaint):
        sink.claim("test", None)


def test_a_table_with_more_columns_and_other_fitting_types_is_used(subject: Subject, stage: Stage) -> None:
    time_type = "timestamp" if is_postgres(subject) else "datetime(6)"
    subject.server.execute(
        f"CREATE TABLE {subject.name} (total double precision, sensor numeric(20), name varchar(99), "
        f"window_end {time_type}, note varchar(20) DEFAULT 'hello', PRIMARY KEY (sensor))"
    )
    sink = claimed(subject)
    sink.publish(0, stage(sink, make_rows(1000)), context())
    assert subject.rows() == rows_of(make_rows(1000))
    assert {note for (note,) in subject.server.execute(f"SELECT note FROM {subject.name}")} == {"hello"}


def test_rows_that_the_table_refuses_stop_the_flow_and_are_not_lost(subject: Subject, stage: Stage) -> None:
    sink = claimed(subject)
    subject.server.execute(f"ALTER TABLE {subject.name} ADD CHECK (total < 1000)")
    staged = stage(sink, make_rows(1000), make_rows(9000))
    with pytest.raises(SinkError, match="refuses it"):
        sink.publish(0, staged, context())
    assert subject.rows() == []
    subject.server.execute(f"UPDATE anabranch_commits SET epoch = 0 WHERE target = '{subject.name}'")
    sink.publish(0, stage(sink, make_rows(1000)), context())
    assert subject.rows() == rows_of(make_rows(1000))


def test_wrong_logins_and_rights_are_said_before_the_first_batch_without_the_password(subject: Subject) -> None:
    module = postgres_server if is_postgres(subject) else mariadb_server
    url = subject.server.url
    wrong = {
        url.replace(module.PASSWORD, "another%20secret"): r"correct user, password, database",
        url.replace(f"/{module.DATABASE}", "/nowhere"): r"correct user, password, database",
        url.replace(f"{module.USER}:", "nobody:"): r"correct user, password, database",
    }
    for number, (given, complaint) in enumerate(wrong.items()):
        sink = subject.make(url=given)
        sink.check(SCHEMA)
        with pytest.raises(SinkError, match=complaint) as raised:
            sink.claim("test", None)
        assert "secret" not in str(raised.value), number
        assert "secret" not in str(raised.value.__cause__) and raised.value.__suppress_context__


def test_a_user_without_rights_hears_which_are_needed(subject: Subject) -> None:
    server, user = subject.server, f"poor_{subject.name[-8:]}"
    if is_postgres(subject):
        server.execute(f"CREATE USER {user} PASSWORD 'x1'")
    else:
        server.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'x1'")
        server.execute(f"GRANT USAGE ON results.* TO '{user}'@'%'")
        server.execute(f"CREATE TABLE {subject.name} (sensor bigint)")
        server.execute(f"GRANT SELECT ON results.{subject.name} TO '{user}'@'%'")
    module = postgres_server if is_postgres(subject) else mariadb_server
    sink = subject.make(url=server.url.replace(f"{module.USER}:{module.PASSWORD}", f"{user}:x1"))
    sink.check(SCHEMA)
    with pytest.raises(SinkError, match=r"grant the user .*INSERT"):
        sink.claim("test", None)


def test_addresses_may_name_environment_variables(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    module = postgres_server if is_postgres(subject) else mariadb_server
    sink = subject.make(url=subject.server.url.replace(module.PASSWORD, "${RESULTS_SECRET}"))
    sink.check(SCHEMA)
    with pytest.raises(SinkError, match="RESULTS_SECRET, which is not set"):
        sink.claim("test", None)
    monkeypatch.setenv("RESULTS_SECRET", module.PASSWORD)
    sink.claim("test", None)


def test_results_that_were_set_back_are_noticed(subject: Subject, stage: Stage) -> None:
    sink = claimed(subject)
    for batch in range(5):
        sink.publish(batch, stage(sink, make_rows(1000 + batch, 1)), context())
    subject.server.execute(f"UPDATE anabranch_commits SET batch = 1 WHERE target = '{subject.name}'")
    with pytest.raises(SinkError, match=r"lost what was published before batch 5.*on_loss"):
        sink.publish(5, stage(sink, make_rows(1005, 1)), context())
    again = subject.make()
    again.check(SCHEMA)
    with pytest.raises(SinkError, match="ends with batch 1, though batches up to 4 were committed"):
        again.claim("test", 4)


def test_wrong_arguments_are_said_at_once(subject: Subject) -> None:
    with pytest.raises(SinkError, match="needs keys"):
        subject.make(keys=(), mode="upsert")
    with pytest.raises(SinkError, match="'upsert' or 'append'"):
        subject.make(mode="merge")
    with pytest.raises(SinkError, match="is no table"):
        subject.make(table="a b; DROP TABLE c")
    with pytest.raises(SinkError, match="a URL such as") as raised:
        subject.make(url="http://user:hush@host/x")
    assert "hush" not in str(raised.value)
    with pytest.raises(SinkError, match="on_loss is one of"):
        subject.make(on_loss="panic")
    with pytest.raises(SinkError, match=r"names 'site'; the results have sensor"):
        subject.make(keys=("site",)).check(SCHEMA)
    with pytest.raises(SinkError, match="which the results have already"):
        subject.make(batch_column="total").check(SCHEMA)


def test_two_drivers_that_find_no_mark_do_not_both_fill_the_table_again(
    subject: Subject, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: dict[str, Any] = {"keys": (), "on_loss": "republish"}
    old = subject.opened(**more)
    subject.server.execute(f"DELETE FROM anabranch_commits WHERE target = '{subject.name}'")
    staged = stage(old, make_rows(1000))
    database = type(old._session.held.connection)
    lock_mark = database.lock_mark
    newer = threading.Thread(
        target=lambda: subject.make(**more).publish(0, staged, context(epoch=2, rebuilding=True)), daemon=True
    )

    def look_and_pause(self: Any, table: str) -> Any:
        found = lock_mark(self, table)
        monkeypatch.undo()
        newer.start()
        newer.join(0.5)
        return found

    monkeypatch.setattr(database, "lock_mark", look_and_pause)
    # Whoever comes second finds the batch done, or that it is the older one.
    with contextlib.suppress(SinkError):
        old.publish(0, staged, context(epoch=1, rebuilding=True))
    newer.join(30)
    assert not newer.is_alive()
    assert subject.rows() == rows_of(make_rows(1000))
