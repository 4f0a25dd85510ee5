"""What a Kafka cluster says of its topics: partitions, first and next offsets, offsets by time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from anabranch.connectors.kafka.connection import REQUEST_SECONDS, KafkaConnection, load_confluent_kafka
from anabranch.errors import SourceError

_NO_SUCH_TIME = -1


class TopicPart(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.number}"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now: a topic that was deleted and made again has another id."""

    id: str
    partitions: tuple[int, ...]


class OutOfReach(Exception):
    """The cluster does not answer, or not completely, at the moment; it may be well again soon."""


class Cluster(Protocol):
    """The questions a planner asks. Each raises ``OutOfReach``, or ``SourceError`` for what waiting will not mend."""

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicFacts]:
        """Return the topics of these names that exist."""
        ...

    def starts(self, parts: Iterable[TopicPart]) -> Mapping[TopicPart, int]:
        """Return the offset of the oldest message that is still there, for every partition."""
        ...

    def ends(self, parts: Iterable[TopicPart]) -> Mapping[TopicPart, int]:
        """Return the offset behind the last message that may be read, for every partition."""
        ...

    def at_time(self, parts: Iterable[TopicPart], time_ms: int) -> Mapping[TopicPart, int]:
        """Return the offset of the first message of a time or later, for the partitions that have one."""
        ...


class LiveCluster:
    """Asks a real cluster, through one client that a process keeps."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._kafka = load_confluent_kafka()
        from confluent_kafka import admin

        self._admin_module: Any = admin
        self._connection = connection
        self._client = _connect(connection, os.getpid())

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicFacts]:
        """Return the topics of these names that exist."""
        wanted = self._kafka.TopicCollection(list(names))
        found: dict[str, TopicFacts] = {}
        for name, answer in self._ask(self._client.describe_topics, wanted).items():
            try:
                facts = answer.result(REQUEST_SECONDS * 2)
            except Exception as error:
                if self._code(error) == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._translate(error) from error
            found[name] = TopicFacts(str(facts.topic_id), tuple(sorted(part.id for part in facts.partitions)))
        return found

    def starts(self, parts: Iterable[TopicPart]) -> Mapping[TopicPart, int]:
        """Return the offset of the oldest message that is still there, for every partition."""
        return self._offsets(parts, self._admin_module.OffsetSpec.earliest())

    def ends(self, parts: Iterable[TopicPart]) -> Mapping[TopicPart, int]:
        """Return the offset behind the last message that may be read, for every partition."""
        return self._offsets(parts, self._admin_module.OffsetSpec.latest())

    def at_time(self, parts: Iterable[TopicPart], time_ms: int) -> Mapping[TopicPart, int]:
        """Return the offset of the first message of a time or later, for the partitions that have one."""
        found = self._offsets(parts, self._admin_module.OffsetSpec.for_timestamp(time_ms))
        return {part: offset for part, offset in found.items() if offset >= 0}

    def _offsets(self, parts: Iterable[TopicPart], spec: Any) -> dict[TopicPart, int]:
        levels = self._kafka.IsolationLevel
        level = levels.READ_COMMITTED if self._connection.reads_committed else levels.READ_UNCOMMITTED
        wanted = {self._kafka.TopicPartition(part.topic, part.number): spec for part in parts}
        if not wanted:
            return {}
        answers = self._ask(self._client.list_offsets, wanted, isolation_level=level)
        found = {}
        for part, answer in answers.items():
            try:
                offset = int(answer.result(REQUEST_SECONDS * 2).offset)
            except Exception as error:
                raise self._translate(error) from error
            if offset < _NO_SUCH_TIME:
                # What the library says of a partition whose broker has just come back and is no leader yet.
                msg = f"the Kafka servers {self._connection.servers} do not know the offsets of {part.topic} now"
                raise OutOfReach(msg)
            found[TopicPart(part.topic, part.partition)] = offset
        return found

    def _ask(self, question: Any, *arguments: Any, **settings: Any) -> Any:
        try:
            return question(*arguments, request_timeout=REQUEST_SECONDS, **settings)
        except self._kafka.KafkaException as error:
            raise self._translate(error) from error

    def _code(self, error: Exception) -> int | None:
        inner = error.args[0] if isinstance(error, self._kafka.KafkaException) and error.args else None
        return inner.code() if isinstance(inner, self._kafka.KafkaError) else None

    def _translate(self, error: Exception) -> Exception:
        kinds = self._kafka.KafkaError
        code = self._code(error)
        if code in (kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED, kinds._SSL):
            msg = (
                f"the Kafka servers {self._connection.servers} do not accept the login or its encryption; "
                f"look at security.protocol, sasl.* and ssl.* in options"
            )
            return SourceError(msg)
        if code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.CLUSTER_AUTHORIZATION_FAILED):
            msg = (
                f"the Kafka servers {self._connection.servers} do not allow this user to read or describe the topics; "
                f"grant it Read and Describe"
            )
            return SourceError(msg)
        text = error.args[0].str() if code is not None else (str(error) or type(error).__name__)
        return OutOfReach(f"the Kafka servers {self._connection.servers} do not answer: {text}")


@cache
def _connect(connection: KafkaConnection, process: int) -> Any:
    """Return the client of a process: one that was forked must not use the other's connections."""
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(_without_consumer_settings(connection.client()))
    except load_confluent_kafka().KafkaException as error:
        raise SourceError(_bad_settings(error)) from error


def _without_consumer_settings(settings: dict[str, Any]) -> dict[str, Any]:
    # An admin client warns about them.
    prefixes = ("fetch.", "queued.", "isolation.", "check.crcs", "group.", "max.poll", "session.timeout", "partition.")
    return {name: value for name, value in settings.items() if not name.startswith(prefixes)}


def _bad_settings(error: Exception) -> str:
    # The library's text names the setting and may repeat its value: only the name is kept.
    text = str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else "unknown reason"
    name = next((word.strip('"') for word in text.split() if "." in word.strip('".,')), "one of the options")
    return f"the Kafka client does not accept {name!r} in options; see librdkafka's list of settings for what it takes"
