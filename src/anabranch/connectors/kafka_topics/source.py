"""Kafka topics as a source."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl

from anabranch.connectors.formats.messages.by_name import make_format
from anabranch.connectors.formats.messages.decoders import ValueFormat
from anabranch.connectors.formats.messages.messages import METADATA_TYPES
from anabranch.connectors.formats.messages.schema_registries import make_registry
from anabranch.connectors.kafka_topics.cluster import LiveCluster, OutOfReach, Refused
from anabranch.connectors.kafka_topics.connection import KafkaConnection, load_confluent_kafka, make_connection
from anabranch.connectors.kafka_topics.group_offsets import GroupOffsets, check_group
from anabranch.connectors.kafka_topics.planner import KafkaPlanner, PlanSettings, StartAt
from anabranch.connectors.kafka_topics.reading import ReadSettings, measure_rows, read_split
from anabranch.connectors.kafka_topics.topics import Topic
from anabranch.errors import FlowError, SourceError
from anabranch.model import Admission, ReadOutcome, Split
from anabranch.model.identities import Identity
from anabranch.model.schema_forms import SchemaLike

if TYPE_CHECKING:
    from anabranch.connectors.partitioner import Partitioner

KafkaFormat = Literal["json", "avro", "protobuf", "raw"]
MetadataName = Literal["key", "headers", "topic", "partition", "offset", "timestamp"]

DEFAULT_MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The messages of topics; made by ``kafka``."""

    connection: KafkaConnection
    topics: tuple[str, ...]
    format: ValueFormat
    start: StartAt
    admission: Admission
    include: Mapping[str, str]
    tombstones: str
    on_loss: str
    patience_seconds: float
    poll_seconds: float
    partitioned_by: Partitioner | None = None
    """What the topics were written by, if that is known."""
    commit_group: str | None = None
    """The consumer group that is told how far the flow is, if any."""

    @property
    def label(self) -> str:
        """Name the topics and their format."""
        return f"kafka {', '.join(self.topics)} ({self.format.name})"

    @property
    def identity(self) -> Identity:
        """Name the topics; the servers that are asked for them may change."""
        return Identity("kafka", tuple(sorted(self.topics)), {"servers": self.connection.servers})

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        """The columns of the values, and those of ``include`` behind them."""
        return {**self.format.schema, **{column: METADATA_TYPES[part] for part, column in self.include.items()}}

    def check(self) -> None:
        """Raise ``SourceError`` if the cluster or a topic is out of reach, ``FlowError`` if the format cannot work."""
        self.format.check()
        try:
            found = LiveCluster(self.connection).topics(self.topics)
        except Refused as error:
            raise SourceError(str(error)) from error
        except OutOfReach as error:
            msg = f"{error}; look at the address, and at security.protocol in options"
            raise SourceError(msg) from error
        missing = [topic for topic in self.topics if topic not in found]
        if missing:
            msg = (
                f"the Kafka servers {self.connection.servers} have no topic {missing[0]!r} that this user can see; "
                f"create it, or correct the name"
            )
            raise SourceError(msg)

    def would_read(self, written: object) -> bool:
        """Say whether the messages of a topic would be read."""
        return isinstance(written, Topic) and any(Topic(self.connection, name).is_same(written) for name in self.topics)

    def planner(self) -> KafkaPlanner:
        """Return the driver side, which asks the cluster how far its topics go."""
        settings = PlanSettings(
            self.topics, self.start, self.admission, self.on_loss == "skip", self.patience_seconds, self.poll_seconds
        )
        return KafkaPlanner(LiveCluster(self.connection), settings, partial(measure_rows, self.connection))

    def open_teller(self) -> GroupOffsets | None:
        """Return who commits offsets to the consumer group, if there is to be one."""
        if self.commit_group is None:
            return None
        return GroupOffsets(partial(LiveCluster, self.connection), self.commit_group)

    def read(self, split: Split, columns: Sequence[str] | None = None) -> Iterator[ReadOutcome]:
        """Read a split; with ``columns``, only these come back, in the order of the schema."""
        settings = ReadSettings(
            self.connection, self.format, self.include, self.tombstones, self.on_loss == "skip", self.patience_seconds
        )
        for outcome in read_split(split, settings):
            if columns is None:
                yield outcome
            else:
                yield ReadOutcome(outcome.frame.select([c for c in self.schema if c in set(columns)]), outcome.rejected)


def kafka(  # noqa: PLR0913 - a source has this many knobs, all by keyword, all with defaults
    servers: str | Sequence[str],
    topic: str | Sequence[str],
    *,
    format: KafkaFormat = "json",
    schema: SchemaLike | None = None,
    value_schema: str | Path | Mapping[str, Any] | None = None,
    registry: str | Mapping[str, Any] | None = None,
    start: str | datetime.datetime = "earliest",
    max_rows: int | None = None,
    max_bytes: int | None = DEFAULT_MAX_BYTES,
    include: Sequence[MetadataName] | Mapping[MetadataName, str] = (),
    tombstones: Literal["drop", "keep", "reject"] = "drop",
    on_loss: Literal["fail", "skip"] = "fail",
    patience_seconds: float = 300.0,
    poll_seconds: float = 0.02,
    options: Mapping[str, Any] | None = None,
    partitioned_by: Partitioner | None = None,
    commit_group: str | None = None,
) -> KafkaSource:
    """Read the messages of one or several topics, and new ones as they come; each partition in its order.

    ``start`` is where the first run begins: ``"earliest"``, ``"latest"``, or the time of the first message, as a
    ``datetime`` or ISO 8601 text; later runs go on where the checkpoint stands. Partitions that are added later are
    read from their beginning. ``max_rows`` and ``max_bytes`` limit a batch, shared fairly by the partitions.
    ``max_rows`` counts offsets, ``max_bytes`` goes by the size of the topic's first messages.

    ``schema`` names the columns. Avro and Protobuf need ``value_schema`` (an Avro schema as JSON or ``.avsc`` file; a
    Protobuf class as ``module:Message``, or ``file.desc:package.Message``) or, for Avro, a schema ``registry`` (its
    URL, or settings of its client); then ``schema`` may be left out. ``include`` adds what a message has besides its
    value. ``options`` are librdkafka's settings: security, timeouts, ``isolation.level``; they are never shown.

    Servers that go away are waited for, for up to ``patience_seconds``. Messages that were deleted before they were
    read stop the flow, unless ``on_loss="skip"``. ``partitioned_by`` is the partitioner that wrote the topics, for
    ``key_by(…, exchange="ahead")`` to check.

    ``commit_group`` names a consumer group to which the offsets of every batch are committed once it is published, in
    the background, for tools that show lag. The flow itself never reads them.

    Examples:
        >>> clicks = ab.kafka(
        ...     "kafka-1:9092",
        ...     "clicks",
        ...     schema={"user": pl.Int64, "page": pl.String},
        ...     include={"key": "shop"},
        ...     options={"security.protocol": "SSL"},
        ... )
        >>> clicks.schema
        {'user': Int64, 'page': String, 'shop': Binary}
    """
    load_confluent_kafka()
    connection = make_connection(list(servers) if not isinstance(servers, str) else servers, options)
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    if not topics or len(set(topics)) != len(topics):
        msg = f"the topics are {list(topics)}; name at least one, and each once"
        raise FlowError(msg)
    _check_choice("format", format, get_args(KafkaFormat))
    _check_choice("tombstones", tombstones, ("drop", "keep", "reject"))
    _check_choice("on_loss", on_loss, ("fail", "skip"))
    for name, limit in (("max_rows", max_rows), ("max_bytes", max_bytes)):
        if limit is not None and limit < 1:
            msg = f"{name} is {limit}, so no batch could read anything; use a positive number, or None for no limit"
            raise FlowError(msg)
    if commit_group is not None:
        check_group(commit_group)
    made = make_format(format, schema, value_schema, make_registry(registry, patience_seconds), topics[0])
    return KafkaSource(
        connection=connection,
        topics=topics,
        format=made,
        start=_read_start(start),
        admission=Admission(max_rows, max_bytes),
        include=_read_include(include, made.schema),
        tombstones=tombstones,
        on_loss=on_loss,
        patience_seconds=patience_seconds,
        poll_seconds=poll_seconds,
        partitioned_by=partitioned_by,
        commit_group=commit_group,
    )


def _check_choice(name: str, given: str, allowed: Sequence[str]) -> None:
    if given not in allowed:
        msg = f"{name} is {given!r}; use one of {', '.join(allowed)}"
        raise FlowError(msg)


def _read_start(start: str | datetime.date) -> StartAt:
    if start in ("earliest", "latest"):
        return StartAt(str(start))
    try:
        moment = datetime.datetime.fromisoformat(str(start))
    except ValueError:
        msg = f"start is {start!r}; use 'earliest', 'latest', a datetime, or a time such as '2026-01-31T12:00:00Z'"
        raise FlowError(msg) from None
    if moment.tzinfo is None:
        # As everywhere in flows: times without a zone are UTC.
        moment = moment.replace(tzinfo=datetime.UTC)
    return StartAt("time", int(moment.timestamp() * 1000))


def _read_include(given: Sequence[str] | Mapping[Any, str], schema: Mapping[str, pl.DataType]) -> dict[str, str]:
    if isinstance(given, str):
        given = [given]
    wanted = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    for part, column in wanted.items():
        _check_choice("include", part, tuple(METADATA_TYPES))
        if column in schema:
            msg = (
                f"include would add a column {column!r}, which the values have, too; "
                f"name it otherwise: include={{{part!r}: 'kafka_{part}'}}"
            )
            raise FlowError(msg)
    if len(set(wanted.values())) != len(wanted):
        msg = f"include gives the same name to two columns: {wanted}; name each otherwise"
        raise FlowError(msg)
    return {str(part): column for part, column in wanted.items()}
