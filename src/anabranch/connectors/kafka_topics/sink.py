"""Results as messages of a Kafka topic: a batch is one transaction, with its number among the offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from anabranch.connectors.commit_markers import NOTHING, Publication
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.formats.messages.schema_registries import Registry, make_registry
from anabranch.connectors.formats.value_encoders import AvroEncoder, Format, make_encoder
from anabranch.connectors.kafka_topics.connection import KafkaConnection, load_confluent_kafka, make_connection
from anabranch.connectors.kafka_topics.marked_group import MarkedGroup, TopicMark
from anabranch.connectors.kafka_topics.producer import TransactionalProducer
from anabranch.connectors.kafka_topics.row_messages import MessageStaging
from anabranch.connectors.kafka_topics.topics import Topic
from anabranch.connectors.retry import DEFAULT_PATIENCE_SECONDS, ServerAway, at_start, insist
from anabranch.connectors.sink_ownership import TakenOver, refuse_newer
from anabranch.errors import AnabranchError, SinkError
from anabranch.model import StagedFile

ANSWER_SECONDS = 15.0

logger = logging.getLogger("anabranch")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch that the brokers took, and where the last of its messages lie, of each partition one."""

    batch: int
    places: Mapping[int, int]
    """Partition → offset."""


@dataclass(slots=True)
class _Session:
    """What the driver holds of a sink: its producer, and what it knows."""

    schema: Mapping[str, pl.DataType] | None = None
    flow: str | None = None
    producer: TransactionalProducer | None = None
    group: MarkedGroup | None = None
    """What keeps the number of the last batch."""
    published: TopicMark = field(default_factory=TopicMark)
    sent: _Sent | None = None
    """What the brokers last took, whatever became of its transaction."""
    was_open: bool = False
    taken_over: bool = False
    """Whether another driver's producer has taken this one's place; it must not have published anything since."""
    header: bytes = b""
    """What a schema registry wants before every value."""


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Messages of a topic; made by ``kafka_topic``."""

    connection: KafkaConnection
    topic: str
    staging: MessageStaging
    registry: Registry | None
    patience_seconds: float
    suffix: str = ".arrow"
    _session: _Session = field(default_factory=_Session, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks only make messages: servers and passwords stay on the driver.
        staging = self.staging
        parts = (staging.label, staging.encoder, staging.key, staging.headers, staging.timestamp, staging.tombstones)
        return MessageStaging, parts

    @property
    def label(self) -> str:
        """Name the servers and the topic."""
        return self.staging.label

    @property
    def place(self) -> str:
        """Name the servers and the topic: a flow has one sink for each, others may write there, too."""
        return f"kafka {self.connection.servers} {self.topic}"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if columns are missing or cannot be written; asks no server."""
        self.staging.check(schema)
        self._session.schema = dict(schema)

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the flow's transactions to this topic over, and refuse later batches than the checkpoint's."""

        self._session.taken_over = False

        def look() -> None:
            self._ask(self._open, flow)
            refuse_newer(self.label, self._session.published.batch, last_batch)

        insist(self.place, at_start(self.patience_seconds), look)
        if self._session.published.batch == NOTHING and last_batch is not None and last_batch > NOTHING:
            logger.warning(
                "%s has no mark of the flow %r: it is taken as new (Kafka forgets marks of flows that stood still for "
                "longer than offsets.retention.minutes)",
                self.label,
                flow,
            )

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file of messages."""
        return self.staging.encode(frame)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Produce the batch's messages in one transaction with its number; one that is there already is left alone."""
        if any(file.rows for file, _ in staged):
            given, flow = Publication.of(batch, context), str(context["flow"])
            insist(self.place, self.patience_seconds, lambda: self._ask(self._publish, flow, given, staged))

    def written(self) -> tuple[Topic, ...]:
        """Return the topic."""
        return (Topic(self.connection, self.topic),)

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: messages cannot be taken back."""
        msg = (
            f"{self.label} keeps the messages of batches after {after_batch}: readers may have them already; "
            "go on under another flow name, or write to another topic"
        )
        raise SinkError(msg)

    def close(self) -> None:
        """Give up the producer; an open transaction is aborted, or ends when the next producer begins."""
        producer, self._session.producer = self._session.producer, None
        if producer is not None:
            producer.close()
        group, self._session.group = self._session.group, None
        if group is not None:
            group.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _ask(self, act: Callable[..., T], *arguments: Any) -> T:
        """Do something, and begin anew with another producer if anything goes wrong: the mark says what was done."""
        kafka = load_confluent_kafka()
        try:
            return act(kafka, *arguments)
        except kafka.KafkaException as error:
            refusal = None
            if self._session.producer is not None:
                self._session.producer.hear()
                refusal = self._session.producer.refusal
            self.close()
            raise self._explain(error.args[0], refusal) from None
        except BaseException:
            self.close()
            raise

    def _open(self, kafka: Any, flow: str, epoch: int | None = None) -> None:
        """Make a producer that fences all earlier ones of this flow and topic, and read the last batch.

        A driver that comes back, of an epoch that is known, looks first: it must not fence a newer one.
        """
        session = self._session
        self._give_up_if_a_broker_went()
        if session.producer is not None and session.flow == flow:
            return
        self.close()
        name = f"anabranch-{flow}-{self.topic}"
        session.flow = flow
        if self.registry is not None and not session.header:
            encoder = self.staging.encoder
            assert isinstance(encoder, AvroEncoder) and session.schema is not None, "check() comes before claim()"
            session.header = self.registry.register(f"{self.topic}-value", encoder.schema_of(session.schema))
        session.group = MarkedGroup(kafka, self.connection, name, self.topic, self._answer_seconds)
        if epoch is not None:
            self._refuse_older_driver(session.group.peek(), flow, epoch)
        session.producer = TransactionalProducer(kafka, self.connection, name, self.topic, self._answer_seconds)
        session.producer.open()
        published = session.group.read(session.published, NOTHING if session.sent is None else session.sent.batch)
        if session.taken_over and session.published != published:
            raise SinkError(self._overtaken())
        session.published, session.was_open, session.taken_over = published, True, False

    def _publish(self, kafka: Any, flow: str, given: Publication, staged: Sequence[tuple[StagedFile, str]]) -> None:
        self._open(kafka, flow, given.epoch)
        session = self._session
        producer, group, published = session.producer, session.group, session.published
        assert producer is not None and group is not None, "an open session has them"
        self._refuse_older_driver(published, flow, given.epoch)
        messages = read_staged(staged)
        assert messages is not None, "some staged file has rows"
        if self._is_there(given.batch, messages):
            if published.batch >= given.batch and not group.stays_open:
                return
            # Only the mark is not there: a driver that came now would send the messages again, or wait for ever.
            messages = messages.clear()
        try:
            producer.produce(messages, session.header)
        finally:
            # Also where the brokers took some only: these must have ended before others are sent.
            if producer.places:
                session.sent = _Sent(given.batch, producer.places)
        if self._give_up_if_a_broker_went():
            msg = "a broker went away while it took the messages"
            raise ServerAway(msg)
        mark = TopicMark(given.batch, given.epoch)
        producer.commit(group, mark, flow)
        session.published = mark
        group.confirm(mark)

    def _is_there(self, batch: int, messages: pl.DataFrame) -> bool:
        """Say whether the messages of a batch are in the topic: its mark says so, or they do if this driver sent them.

        A broker that is killed right after a commit may take the transaction as complete without having written its
        end, into some partitions or all. There it stays open for ever, and readers wait, unless the same producer ends
        another one. Where no message is to be seen, that is an abort, and the messages are sent again.
        """
        session = self._session
        producer, group, sent = session.producer, session.group, session.sent
        assert producer is not None and group is not None, "an open session has them"
        if sent is None or sent.batch != batch:
            return session.published.batch >= batch
        seen = group.look(sent.places)
        # This producer could only begin when all earlier transactions were complete: what is open now was forgotten.
        forgotten = sorted(sent.places.keys() - seen.keys())
        if forgotten and not any(seen.values()):
            logger.warning(
                "%s forgot to end the transaction of batch %d when a broker went away: it is aborted", self.label, batch
            )
            producer.abort_open(messages.head(1), session.header, forgotten)
            seen = group.look(sent.places)
        if len(seen) < len(sent.places):
            msg = (
                f"a transaction of the topic {self.topic} does not end (if this lasts, see who else writes there, and "
                "end it with kafka-transactions.sh)"
            )
            raise ServerAway(msg)
        if all(seen.values()):
            return True
        if any(seen.values()):
            msg = (
                f"{self.label} has the messages of batch {batch} in the partitions {_partitions_of(seen, True)}, and "
                f"brokers that went away lost those in {_partitions_of(seen, False)}; to go on without them, start the "
                "flow again"
            )
            raise SinkError(msg)
        if session.published.batch >= batch:
            logger.warning(
                "%s lost the messages of batch %d when a broker went away: they are sent again", self.label, batch
            )
        return False

    def _refuse_older_driver(self, published: TopicMark, flow: str, epoch: int) -> None:
        if published.epoch > epoch:
            msg = (
                f"{self.label} was written by a newer driver of {flow!r} (epoch {published.epoch}), this one has epoch "
                f"{epoch} and must stop; see who else runs the flow"
            )
            raise SinkError(msg)

    def _give_up_if_a_broker_went(self) -> bool:
        """Let go of a producer one of whose connections broke; say whether one did."""
        producer = self._session.producer
        if producer is None:
            return False
        producer.hear()
        if producer.lost_a_broker:
            self.close()
        return producer.lost_a_broker

    @property
    def _answer_seconds(self) -> float:
        return max(1.0, min(ANSWER_SECONDS, self.patience_seconds))

    def _overtaken(self) -> str:
        return (
            f"{self.label}: another driver of the flow {self._session.flow!r} took its transactions over, or one was "
            "open for longer than transaction.timeout.ms; see who else runs the flow, and start it again"
        )

    def _explain(self, error: Any, refusal: str | None) -> Exception:
        """Return what to raise: waiting helps, or it does not."""
        name = error.name()
        if name in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            self._session.taken_over = True
            return TakenOver(self._overtaken())
        if refusal is not None:
            text = f"the servers do not let the flow in: {refusal}"
            # Who was in before may hope that this passes.
            return ServerAway(text) if self._session.was_open else SinkError(f"{self.place}: {text}")
        advice = _ADVICE.get(name)
        # A topic that was there may be missing for a moment while brokers start.
        if advice is not None and not (self._session.was_open and "UNKNOWN_TOPIC" in name):
            return SinkError(f"{self.place} refuses it ({name}: {error.str()}); {advice}")
        return ServerAway(f"{name}: {error.str()}")


def _partitions_of(seen: Mapping[int, bool], wanted: bool) -> str:
    return ", ".join(str(partition) for partition, is_there in sorted(seen.items()) if is_there == wanted)


_RIGHTS = "the user needs the rights Write and Read on the topic, Write on the transactional id, Read on the group"
_ADVICE = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "TOPIC_EXCEPTION": "correct the topic's name",
    "TOPIC_AUTHORIZATION_FAILED": _RIGHTS,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _RIGHTS,
    "GROUP_AUTHORIZATION_FAILED": _RIGHTS,
    "CLUSTER_AUTHORIZATION_FAILED": _RIGHTS,
    "SASL_AUTHENTICATION_FAILED": "correct user and password in options",
    "MSG_SIZE_TOO_LARGE": "raise message.max.bytes in options, and the topic's max.message.bytes",
    "INVALID_TIMESTAMP": (
        "a row's time is too far from the broker's clock: raise the topic's message.timestamp.after.max.ms or "
        "message.timestamp.before.max.ms and start again, or leave timestamp= out"
    ),
    "INVALID_RECORD": "a compacted topic wants messages with keys: give key=…",
    "INVALID_TRANSACTION_TIMEOUT": "lower transaction.timeout.ms in options to what the brokers allow",
    "_INVALID_ARG": "correct options",
}


def kafka_topic(  # noqa: PLR0913 - options of Kafka, each with its default
    servers: str | list[str] | tuple[str, ...],
    topic: str,
    *,
    key: str | Sequence[str] = (),
    format: Format = "json",
    value: str = "value",
    value_schema: str | Path | Mapping[str, Any] | None = None,
    registry: str | Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timestamp: str | None = None,
    tombstones: bool = False,
    options: Mapping[str, Any] | None = None,
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> KafkaSink:
    """Write results to a Kafka topic, exactly once for readers of committed messages: a batch is one transaction.

    ``key`` names columns: one is written as it is, several as JSON. ``format`` is ``json``, ``avro`` or ``protobuf``
    of all columns, or ``raw``, the bytes of the column ``value``. ``headers`` maps names to columns. With
    ``tombstones``, a row without anything but its key is a message without a value. ``options`` go to librdkafka.

    Examples:
        >>> ab.kafka_topic("kafka-1:9092", "lowest", key="sensor").label
        'kafka kafka-1:9092 lowest (json)'
    """
    load_confluent_kafka()
    if not topic:
        msg = "kafka_topic needs the name of a topic"
        raise SinkError(msg)
    try:
        connection = make_connection(servers, options)
        known = make_registry(registry, patience_seconds)
        encoder = make_encoder(format, value, value_schema, topic)
    except SinkError:
        raise
    except AnabranchError as error:
        raise SinkError(str(error)) from None
    if known is not None and not isinstance(encoder, AvroEncoder):
        msg = f"a schema registry is used with format='avro' only, found {format!r}; leave registry out"
        raise SinkError(msg)
    staging = MessageStaging(
        f"kafka {connection.servers} {topic} ({format})",
        encoder,
        (key,) if isinstance(key, str) else tuple(key),
        tuple((headers or {}).items()),
        timestamp,
        tombstones,
    )
    return KafkaSink(connection, topic, staging, known, patience_seconds)
