"""What the sink to Redis does beyond the contract: lost stores, keys, fields that vanish."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.connectors import ResultsLost, redis_hashes
from anabranch.connectors.redis.sink import RedisHashSink
from anabranch.errors import SinkError
from contracts.database_sinks import SCHEMA, RedisSubject, Stage, context, make_rows, rows_of
from servers.redis import RedisServer


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def subject(own_redis: RedisServer) -> RedisSubject:
    return RedisSubject(own_redis)


def test_a_store_that_was_flushed_is_noticed_at_the_next_publication_and_at_the_next_start(
    subject: RedisSubject, stage: Stage
) -> None:
    sink = subject.opened()
    for batch in range(3):
        sink.publish(batch, stage(sink, make_rows(1000 + batch, 1)), context())
    subject.server.client().flushall()
    with pytest.raises(SinkError, match=r"its mark is gone.*on_loss='republish'"):
        sink.publish(3, stage(sink, make_rows(1003, 1)), context())
    again = subject.make()
    with pytest.raises(SinkError, match="has no mark of the flow 'test', though batches up to 3 were committed"):
        again.claim("test", 3)
    assert subject.rows() == []


def test_a_store_that_is_another_one_is_noticed_though_its_batch_fits(subject: RedisSubject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000)), context())
    client = subject.server.client()
    client.flushall()
    other = subject.make()
    other.claim("test", None)
    other.publish(0, [], context())
    with pytest.raises(SinkError, match="lost what was published before batch 1"):
        sink.publish(1, stage(sink, make_rows(1003)), context())


def test_a_lost_store_asks_for_what_the_checkpoint_keeps_and_is_rebuilt_from_it(
    subject: RedisSubject, stage: Stage
) -> None:
    sink = subject.opened(on_loss="republish")
    batches = [stage(sink, make_rows(1000 + batch, 1)) for batch in range(5)]
    for batch in range(4):
        sink.publish(batch, batches[batch], context())
    subject.server.client().flushall()
    with pytest.raises(ResultsLost) as lost:
        sink.publish(4, batches[4], context())
    assert lost.value.since == 0
    # The checkpoint keeps batches from 2 on.
    for batch in (2, 3, 4):
        sink.publish(batch, batches[batch], context(rebuilding=True))
    assert subject.rows() == rows_of(make_rows(1002, 3))
    sink.publish(5, stage(sink, make_rows(1005, 1)), context())
    assert subject.rows() == rows_of(make_rows(1002, 4))


def test_a_new_sink_of_an_old_flow_is_taken_as_it_is_when_it_is_told_to(subject: RedisSubject, stage: Stage) -> None:
    with pytest.raises(SinkError, match="If this sink is new in the flow, start once with on_loss='ignore'"):
        subject.make().claim("test", 41)
    sink = subject.make(on_loss="ignore")
    sink.claim("test", 41)
    sink.publish(42, stage(sink, make_rows(1000)), context())
    sink.publish(42, stage(sink, make_rows(1003)), context())
    assert subject.rows() == rows_of(make_rows(1000))
    # From now on it bears a mark, and needs no option.
    again = subject.make()
    again.claim("test", 42)
    again.publish(43, stage(again, make_rows(1003)), context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 6))


def test_fields_that_became_null_are_gone(subject: RedisSubject, stage: Stage) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000, 1)), context())
    emptied = make_rows(1000, 1).with_columns(name=pl.lit(None, pl.String))
    sink.publish(1, stage(sink, emptied), context())
    assert "name" not in subject.server.client().hgetall(f"{subject.name}:1000")


def test_hashes_expire_bear_the_time_of_writing_and_are_found_by_an_index(own_redis: RedisServer, stage: Stage) -> None:
    sink = redis_hashes(
        own_redis.url,
        "window:{sensor}:{window_end:ms}",
        times="s",
        expire_seconds=600,
        index=("sensor:{sensor}", "{window_end:ms}"),
        written_at="time_updated",
    )
    sink.check(SCHEMA)
    sink.claim("test", None)
    before = int(time.time() * 1000)
    sink.publish(0, stage(sink, make_rows(1000, 1)), context())
    client = own_redis.client()
    key = "window:1000:1767226600001"
    assert 0 < client.ttl(key) <= 600
    held = client.hgetall(key)
    assert before <= int(held.pop("time_updated")) <= time.time() * 1000
    assert held == {"sensor": "1000", "name": 'näme, "1000"\n', "window_end": "1767226600", "total": "250.0"}
    assert client.hgetall("sensor:1000") == {"1767226600001": key}


def test_wrong_passwords_and_patterns_are_said_before_the_first_batch() -> None:
    with RedisServer(password="s3cret") as server:
        sink = redis_hashes(server.url.replace("s3cret", "guess-it"), "k:{sensor}")
        with pytest.raises(SinkError, match="see that user and password are right") as raised:
            sink.claim("test", None)
        assert "guess" not in str(raised.value)
        right = redis_hashes(server.url, "k:{sensor}")
        right.claim("test", None)
        assert "s3cret" not in f"{right!r} {right.label} {right.place}"
    with pytest.raises(SinkError, match="names no column"):
        redis_hashes("redis://localhost", "results")
    with pytest.raises(SinkError, match="no pattern of a key"):
        redis_hashes("redis://localhost", "results:{sensor")
    with pytest.raises(SinkError, match=r"names 'site'; the results have sensor"):
        redis_hashes("redis://localhost", "results:{site}").check(SCHEMA)
    with pytest.raises(SinkError, match="not a time"):
        redis_hashes("redis://localhost", "results:{sensor:ms}").check(SCHEMA)
    with pytest.raises(SinkError, match="one of iso, s, ms, us"):
        redis_hashes("redis://localhost", "results:{sensor}", times="ns")  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="above 0"):
        redis_hashes("redis://localhost", "results:{sensor}", expire_seconds=0)


def test_a_batch_with_a_row_that_redis_refuses_is_not_done_and_is_written_whole_after_the_repair(
    subject: RedisSubject, stage: Stage
) -> None:
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000, 2)), context())
    staged = stage(sink, make_rows(1002, 3))
    in_the_way = f"{subject.name}:1003"
    client = subject.server.client()
    client.set(in_the_way, "something else")
    with pytest.raises(SinkError, match=rf"'{in_the_way}' holds a string, not a hash.*delete it"):
        sink.publish(1, staged, context())
    assert client.get(in_the_way) == "something else"
    client.delete(in_the_way)
    assert subject.rows() == rows_of(make_rows(1000, 2))
    again = subject.make()
    again.claim("test", 1)
    again.publish(1, staged, context(epoch=2))
    assert subject.rows() == rows_of(make_rows(1000, 5))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_a_key_that_changes_its_type_after_it_was_looked_at_leaves_the_batch_undone(
    subject: RedisSubject, stage: Stage, monkeypatch: pytest.MonkeyPatch, restarted: bool, first: int
) -> None:
    sink = subject.opened()
    if first:
        sink.publish(0, stage(sink, make_rows(990, 1)), context())
    staged = stage(sink, make_rows(1000, 3))
    in_the_way = f"{subject.name}:1001"
    check_keys = RedisHashSink._check_keys

    def look_and_lose(self: RedisHashSink, *arguments: Any) -> None:
        check_keys(self, *arguments)
        monkeypatch.undo()
        subject.server.client().set(in_the_way, "something else")

    monkeypatch.setattr(RedisHashSink, "_check_keys", look_and_lose)
    with pytest.raises(SinkError, match=f"'{in_the_way}' changed while the batch was written .*WRONGTYPE"):
        sink.publish(first, staged, context())
    subject.server.client().delete(in_the_way)
    again = subject.make() if restarted else sink
    again.claim("test", first)
    again.publish(first, staged, context(epoch=2))
    assert subject.rows() == rows_of(*[make_rows(990, 1)] * first, make_rows(1000, 3))


def test_a_mark_that_could_not_be_taken_back_at_once_does_not_count(
    subject: RedisSubject, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = subject.opened()
    staged = stage(sink, make_rows(1000, 3))
    in_the_way = f"{subject.name}:1001"
    check_keys = RedisHashSink._check_keys

    def look_and_lose(self: RedisHashSink, *arguments: Any) -> None:
        check_keys(self, *arguments)
        monkeypatch.undo()
        monkeypatch.setattr(RedisHashSink, "_undo", break_off)
        subject.server.client().set(in_the_way, "something else")

    def break_off(self: RedisHashSink, client: Any) -> None:
        monkeypatch.undo()
        subject.server.client().delete(in_the_way)
        raise ConnectionError("broken by the test")

    monkeypatch.setattr(RedisHashSink, "_check_keys", look_and_lose)
    sink.publish(0, staged, context())
    assert subject.rows() == rows_of(make_rows(1000, 3))


def test_an_index_that_is_no_hash_stops_the_batch(own_redis: RedisServer, stage: Stage) -> None:
    sink = redis_hashes(own_redis.url, "window:{sensor}", index=("home:{sensor}", "{sensor}"))
    sink.check(SCHEMA)
    sink.claim("test", None)
    client = own_redis.client()
    client.rpush("home:1001", "1")
    with pytest.raises(SinkError, match="'home:1001' holds a list"):
        sink.publish(0, stage(sink, make_rows(1000, 2)), context())
    client.delete("home:1001")
    sink.publish(0, stage(sink, make_rows(1000, 2)), context())
    assert client.hgetall("home:1001") == {"1001": "window:1001"}
