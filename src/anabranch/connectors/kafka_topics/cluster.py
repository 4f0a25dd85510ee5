"""What a Kafka cluster says of its topics: partitions, first and next offsets, offsets by time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from anabranch.connectors.kafka_topics.connection import (
    REQUEST_SECONDS,
    KafkaConnection,
    explain_refusal,
    load_confluent_kafka,
)
from anabranch.errors import SourceError

_NO_SUCH_TIME = -1
_LOOK_SECONDS = 0.2


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


class Refused(OutOfReach):
    """The cluster does not let the client in; whoever had been in before may hope that this passes."""


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
        self._kept = _connect(connection, os.getpid())
        self._client = self._kept.client

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicFacts]:
        """Return the topics of these names that exist."""
        wanted = self._kafka.TopicCollection(list(names))
        found: dict[str, TopicFacts] = {}
        for name, answer in self._ask(self._client.describe_topics, wanted).items():
            try:
                facts = self._take(answer)
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

    def commit_offsets(self, group: str, offsets: Mapping[TopicPart, int]) -> None:
        """Set the offsets of a consumer group without members; raise ``OutOfReach`` or ``SourceError`` if it cannot."""
        parts = [self._kafka.TopicPartition(part.topic, part.number, at) for part, at in sorted(offsets.items())]
        wanted = self._kafka.ConsumerGroupTopicPartitions(group, parts)
        try:
            answer = self._take(self._ask(self._client.alter_consumer_group_offsets, [wanted])[group])
        except Exception as error:
            raise self._explain_group(error) from error
        for part in answer.topic_partitions:
            if part.error is not None:
                raise self._explain_group(self._kafka.KafkaException(part.error))

    def _explain_group(self, error: Exception) -> Exception:
        kinds = self._kafka.KafkaError
        if self._code(error) in (kinds.UNKNOWN_MEMBER_ID, kinds.ILLEGAL_GENERATION, kinds.NON_EMPTY_GROUP):
            return SourceError("it has members, which commit offsets of their own: name a group that nobody joins")
        if self._code(error) == kinds.GROUP_AUTHORIZATION_FAILED:
            return SourceError("this user may not: grant it Read on the group")
        return self._translate(error)

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
                offset = int(self._take(answer).offset)
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

    def _take(self, answer: Any) -> Any:
        """Wait for an answer; a refusal ends it at once, as the question itself would only time out."""
        deadline = time.monotonic() + REQUEST_SECONDS * 2
        while True:
            try:
                return answer.result(_LOOK_SECONDS)
            except TimeoutError:
                self._raise_refusal()
                if time.monotonic() > deadline:
                    raise

    def _raise_refusal(self) -> None:
        refusal = self._kept.take_refusal()
        if refusal is not None:
            msg = f"the Kafka servers {self._connection.servers} do not let the flow in: {refusal}"
            raise Refused(msg)

    def _code(self, error: Exception) -> int | None:
        inner = error.args[0] if isinstance(error, self._kafka.KafkaException) and error.args else None
        return inner.code() if isinstance(inner, self._kafka.KafkaError) else None

    def _translate(self, error: Exception) -> Exception:
        if isinstance(error, Refused):
            return error
        self._raise_refusal()
        kinds = self._kafka.KafkaError
        code = self._code(error)
        if code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.CLUSTER_AUTHORIZATION_FAILED):
            msg = (
                f"the Kafka servers {self._connection.servers} do not allow this user to read or describe the topics; "
                f"grant it Read and Describe"
            )
            return SourceError(msg)
        text = error.args[0].str() if code is not None else (str(error) or type(error).__name__)
        return OutOfReach(f"the Kafka servers {self._connection.servers} do not answer: {text}")


class _KeptClient:
    """A client, and what the library said in the background: why nobody answers shows nowhere else."""

    def __init__(self, connection: KafkaConnection) -> None:
        from confluent_kafka.admin import AdminClient

        self._refusal: str | None = None
        settings: dict[str, Any] = {**_without_consumer_settings(connection.client()), "error_cb": self._note}
        self.client = AdminClient(settings)

    def take_refusal(self) -> str | None:
        """Return why brokers refused the client since this was last asked, None if they did not."""
        # Only now does the library call back.
        self.client.poll(0)
        refusal, self._refusal = self._refusal, None
        return refusal

    def _note(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self._refusal = explain_refusal(error.name(), error.str())


@cache
def _connect(connection: KafkaConnection, process: int) -> _KeptClient:
    """Return the client of a process: one that was forked must not use the other's connections."""
    try:
        return _KeptClient(connection)
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
