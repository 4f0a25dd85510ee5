"""Sinks to servers, each with a way to see what a reader sees and to disturb what it does."""

from __future__ import annotations

import itertools
import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.connectors import delta, kafka_topic, mariadb, postgres, redis_hashes
from anabranch.model import StagedFile

SCHEMA = {"sensor": pl.Int64(), "name": pl.String(), "window_end": pl.Datetime("us"), "total": pl.Float64()}
START = datetime(2026, 1, 1)
Row = tuple[int, str | None, datetime, float]
_numbers = itertools.count()


def make_rows(first: int, rows: int = 3, *, shift: float = 0.0) -> pl.DataFrame:
    """Return rows with the sensors ``first`` and up; ``shift`` changes their values."""
    sensors = range(first, first + rows)
    return pl.DataFrame(
        {
            "sensor": list(sensors),
            "name": [None if sensor % 2 else f'näme, "{sensor}"\n' for sensor in sensors],
            "window_end": [START + timedelta(seconds=sensor, microseconds=sensor) for sensor in sensors],
            "total": [sensor / 4 + shift for sensor in sensors],
        },
        schema=SCHEMA,
    )


def context(epoch: int = 1, **more: Any) -> dict[str, Any]:
    """Return what the engine hands to ``publish``."""
    return {"flow": "test", "epoch": epoch, "driver_epoch": epoch, **more}


@dataclass
class Stage:
    """Writes result files as tasks do: the sink is pickled to them, its bytes come back."""

    folder: Path

    def __call__(self, sink: Any, *frames: pl.DataFrame) -> list[tuple[StagedFile, str]]:
        staged = []
        for slot, frame in enumerate(frames):
            content = pickle.loads(pickle.dumps(sink)).encode(frame)
            path = self.folder / f"staged-{next(_numbers)}{sink.suffix}"
            path.write_bytes(content)
            staged.append((StagedFile(path.name, frame.height, len(content), slot), str(path)))
        return staged


@dataclass
class Subject:
    """A kind of sink, at a place of its own."""

    server: Any
    name: str = field(default_factory=lambda: f"results_{uuid.uuid4().hex[:12]}")
    secret: str | None = None
    """The password, which must show nowhere."""
    exclusive: bool = True
    """Whether a place belongs to one flow."""
    outage_seconds: float = 1.0
    """How long the server is away for a sink to notice."""
    short_patience_seconds: float = 0.5
    """Enough to begin, and not to wait."""

    def make(self, **more: Any) -> Any:
        """Return a sink to this place, as another driver would make it."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """Return what a reader sees, in the order of the sensors."""
        raise NotImplementedError

    def lose_the_answer(self, sink: Any) -> None:
        """Let the next commit go through and the connection break before the sink hears of it."""
        raise NotImplementedError

    def opened(self, **more: Any) -> Any:
        """Return a sink that a new flow has claimed."""
        sink = self.make(**more)
        sink.check(SCHEMA)
        sink.claim("test", None)
        return sink


class _SqlSubject(Subject):
    def rows(self) -> list[Row]:
        return self.server.execute(f"SELECT sensor, name, window_end, total FROM {self.name} ORDER BY sensor")

    def lose_the_answer(self, sink: Any) -> None:
        database = sink._session.held.connection
        assert database is not None

        def commit_and_break() -> None:
            type(database).commit(database)
            # The same as a network that is cut: what comes next on this connection fails.
            del database.commit
            database.close()
            database._run("SELECT 1")

        database.commit = commit_and_break


class PostgresSubject(_SqlSubject):
    def make(self, **more: Any) -> Any:
        given = {"keys": ("sensor",), "patience_seconds": 60.0, **more}
        return postgres(given.pop("url", self.server.url), given.pop("table", self.name), **given)


class MariadbSubject(_SqlSubject):
    def make(self, **more: Any) -> Any:
        given = {"keys": ("sensor",), "patience_seconds": 60.0, **more}
        return mariadb(given.pop("url", self.server.url), given.pop("table", self.name), **given)


class RedisSubject(Subject):
    def make(self, **more: Any) -> Any:
        given = {"patience_seconds": 60.0, **more}
        return redis_hashes(given.pop("url", self.server.url), f"{self.name}:{{sensor}}", **given)

    def rows(self) -> list[Row]:
        with self.server.client() as client:
            found = [client.hgetall(key) for key in client.scan_iter(f"{self.name}:*")]
        rows = [
            (int(row["sensor"]), row.get("name"), datetime.fromisoformat(row["window_end"]), float(row["total"]))
            for row in found
        ]
        return sorted(rows)

    def lose_the_answer(self, sink: Any) -> None:
        import redis

        client = sink._session.client
        pipeline = client.pipeline

        def breaking_pipeline(*arguments: Any, **more: Any) -> Any:
            pipe = pipeline(*arguments, **more)
            execute = pipe.execute

            def execute_and_break(*arguments: Any, **more: Any) -> Any:
                execute(*arguments, **more)
                raise redis.ConnectionError("broken by the test")

            pipe.execute = execute_and_break
            return pipe

        client.pipeline = breaking_pipeline


class DeltaSubject(Subject):
    def __init__(self, folder: Path) -> None:
        super().__init__(None, exclusive=False)
        self.path = folder / self.name

    def make(self, **more: Any) -> Any:
        given = {"keys": ("sensor",), "patience_seconds": 20.0, **more}
        return delta(self.path, **given)

    def rows(self) -> list[Row]:
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(str(self.path)):
            return []
        frame = pl.DataFrame(deltalake.DeltaTable(str(self.path)).to_pyarrow_table())
        return frame.select(*SCHEMA).sort("sensor").rows()

    def lose_the_answer(self, sink: Any) -> None:
        from anabranch.connectors.retry import ServerAway

        write = type(sink)._write
        left = [True]

        def write_and_break(self: Any, *arguments: Any) -> None:
            write(self, *arguments)
            if left:
                left.clear()
                raise ServerAway("broken by the test")

        type(sink)._write = write_and_break
        self.undo = lambda: setattr(type(sink), "_write", write)


class KafkaSubject(Subject):
    def __init__(self, server: Any) -> None:
        # Kafka's client itself waits a while for brokers.
        super().__init__(server, exclusive=False, outage_seconds=7.0, short_patience_seconds=8.0)
        server.create_topic(self.name, 2)

    def make(self, **more: Any) -> Any:
        given = {"key": "sensor", "patience_seconds": 60.0, **more}
        return kafka_topic(given.pop("servers", self.server.servers), given.pop("topic", self.name), **given)

    def messages(self) -> list[Any]:
        """Return all committed messages."""
        return read_committed(self.server.servers, self.name)

    def rows(self) -> list[Row]:
        import json

        found = [json.loads(message.value()) for message in self.messages()]
        return sorted(
            (row["sensor"], row["name"], datetime.fromisoformat(row["window_end"]), row["total"]) for row in found
        )

    def lose_the_answer(self, sink: Any) -> None:
        import confluent_kafka

        class BreakingProducer:
            """Commits, and says that it did not."""

            def __init__(self, producer: Any) -> None:
                self._producer = producer

            def __getattr__(self, name: str) -> Any:
                return getattr(self._producer, name)

            def __len__(self) -> int:
                return len(self._producer)

            def commit_transaction(self, *arguments: Any) -> None:
                self._producer.commit_transaction(*arguments)
                raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))

        producer = sink._session.producer
        producer.client = BreakingProducer(producer.client)


def read_committed(servers: str, topic: str, patience_seconds: float = 30.0) -> list[Any]:
    """Return all committed messages of a topic.

    A commit is answered before the partitions hear of it: until then readers stop short of its messages. So the end
    counts once it is that of the log, or after two seconds, for there may be transactions that are still open.
    """
    import confluent_kafka

    settings = {
        "bootstrap.servers": servers,
        "group.id": f"reader-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        # A broker tells the end of a partition when it has waited this long for more.
        "fetch.wait.max.ms": 10,
    }
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"})
    onlooker = confluent_kafka.Consumer(settings | {"isolation.level": "read_uncommitted"})
    settled_by = time.monotonic() + 2.0
    try:
        partitions = consumer.list_topics(topic, patience_seconds).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        waiting, found = set(partitions), []
        while waiting:
            message = consumer.poll(patience_seconds)
            assert message is not None, f"no end of {topic} within {patience_seconds} s"
            if message.error() is None:
                found.append(message)
                continue
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            part = confluent_kafka.TopicPartition(topic, message.partition())
            _, end = onlooker.get_watermark_offsets(part, patience_seconds)
            if message.offset() >= end or time.monotonic() > settled_by:
                waiting.discard(message.partition())
            else:
                # Asked for from here again, the consumer says anew where the end is.
                part.offset = message.offset()
                consumer.seek(part)
        return found
    finally:
        consumer.close()
        onlooker.close()


def rows_of(*frames: pl.DataFrame) -> list[Row]:
    """Return rows as subjects give them."""
    return pl.concat(frames).sort("sensor").rows()


MakeSubject = Callable[[], Subject]
Staged = Sequence[tuple[StagedFile, str]]
