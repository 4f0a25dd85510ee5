"""A transactional producer of one topic, and what becomes of it when brokers come and go."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import polars as pl

from anabranch.connectors.kafka_topics.connection import KafkaConnection, explain_refusal
from anabranch.connectors.kafka_topics.marked_group import MarkedGroup, TopicMark
from anabranch.connectors.kafka_topics.row_messages import HEADERS, KEY, TIME, VALUE
from anabranch.connectors.retry import ServerAway

HANGING_SECONDS = 2.0
STALL_SECONDS = 5.0
"""A queue of messages that does not get shorter for so long: the brokers are out of reach."""
ABORT_SECONDS = 5.0
OPEN_TRANSACTION_MS = 300_000
"""A driver that died and never comes back holds readers up for so long."""
WATCHED_AT_THE_END, WATCHED_ONE_IN = 1_000, 100
"""It is noted where messages lie, of the last ones of a batch and of some before: of all, it would take as long as to
send them."""


class TransactionalProducer:
    """Produces transactions under one name; one that lost a broker is to be closed, and another one made.

    While a broker starts again, the cluster's metadata are without it, and librdkafka drops what it knew of it;
    a coordinator that it remembers from before is then asked for ever, whatever the timeout.
    """

    def __init__(self, kafka: Any, connection: KafkaConnection, name: str, topic: str, answer_seconds: float) -> None:
        self.lost_a_broker = False
        """Whether a connection broke, as far as was heard."""
        self.refusal: str | None = None
        """Why the brokers refuse the client, if they do."""
        self.places: dict[int, int] = {}
        """Partition → offset of the last message there, as far as messages of the last transaction were watched."""
        self._kafka = kafka
        self._topic = topic
        self._answer_seconds = answer_seconds
        settings = connection.client(
            transactional_id=name,
            transaction_timeout_ms=OPEN_TRANSACTION_MS,
            compression_type="lz4",
            linger_ms=20,
            batch_size=1 << 20,
            # Keys go to the partitions that Java's producers would choose.
            partitioner="murmur2_random",
        )
        self.client: Any = kafka.Producer(settings | {"error_cb": self._note_problem})

    def open(self) -> None:
        """Fence all earlier producers of this name, and see whether the topic is there."""
        self.client.init_transactions(self._answer_seconds)
        found = self.client.list_topics(self._topic, self._answer_seconds).topics[self._topic]
        if found.error is not None:
            raise self._kafka.KafkaException(found.error)

    def hear(self) -> None:
        """Let the library call back with what it heard in the background: it does so only when it is asked."""
        if self.client is not None:
            _serve(self.client.poll, 0)

    def produce(self, messages: pl.DataFrame, header: bytes) -> None:
        """Begin a transaction and hand the messages to the brokers, each value behind the header."""
        self.places = {}
        self.client.begin_transaction()
        self._send(messages, header)
        self._flush()

    def abort_open(self, message: pl.DataFrame, header: bytes, partitions: Iterable[int]) -> None:
        """Abort what brokers forgot to end in some partitions, with a message for each that nobody gets.

        The end of a transaction ends all that is open of the same producer in the partitions where it wrote.
        """
        self.client.begin_transaction()
        for partition in partitions:
            self._send(message, header, partition)
        self._flush()
        self._bound(lambda: self.client.abort_transaction(self._answer_seconds))

    def _send(self, messages: pl.DataFrame, header: bytes, partition: int | None = None) -> None:
        """Hand messages to the brokers, to where their keys choose, and watch them; or to one partition, unwatched."""
        client = self.client
        names = [column.removeprefix(f"{HEADERS}.") for column in messages.columns if column.startswith(f"{HEADERS}.")]
        times = messages.get_column(TIME).fill_null(0).to_list() if TIME in messages.columns else None
        texts = messages.select(f"{HEADERS}.{name}" for name in names).rows() if names else None
        keys, values = messages.get_column(KEY).to_list(), messages.get_column(VALUE).to_list()
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            more: dict[str, Any] = {} if times is None else {"timestamp": times[index]}
            if partition is not None:
                more["partition"] = partition
            elif len(keys) - index <= WATCHED_AT_THE_END or index % WATCHED_ONE_IN == 0:
                more["on_delivery"] = self._note_place
            if texts is not None:
                more["headers"] = [(n, t.encode()) for n, t in zip(names, texts[index], strict=True) if t is not None]
            if header and value is not None:
                value = header + value  # noqa: PLW2901 - the message as it goes out
            while True:
                try:
                    client.produce(self._topic, value, key, **more)
                    break
                except BufferError:
                    self._flush()
            if index % 10_000 == 0:
                _serve(client.poll, 0)

    def commit(self, group: MarkedGroup, mark: TopicMark, flow: str) -> None:
        """Commit the transaction together with the mark."""
        client, position = self.client, group.position_of(mark, flow)
        # The mark: readers of the topic do not see it, a restarted driver does, and it holds if the messages do.
        self._bound(lambda: client.send_offsets_to_transaction([position], group.metadata, self._answer_seconds))
        self._bound(lambda: client.commit_transaction(self._answer_seconds))

    def close(self) -> None:
        """Abort what is open; where that would hang, it ends when the next producer begins."""
        client, self.client = self.client, None
        if client is not None and not self.lost_a_broker:
            with contextlib.suppress(Exception):
                client.abort_transaction(ABORT_SECONDS)
            with contextlib.suppress(Exception):
                client.purge()

    def _flush(self) -> None:
        """Wait until the brokers have what was produced, for as long as they take any of it."""
        waiting = len(self.client)
        while waiting:
            left = _serve(self.client.flush, STALL_SECONDS)
            if left >= waiting:
                msg = f"{left} messages are not taken"
                raise ServerAway(msg)
            waiting = left

    def _bound(self, ask: Callable[[], object]) -> None:
        """Ask, and give the client up if it does not come back long after it should have.

        A broker may go just now, see above. A new producer fences the one that hangs.
        """
        failures: list[BaseException] = []

        def answer() -> None:
            try:
                ask()
            except BaseException as error:
                failures.append(error)

        asking = threading.Thread(target=answer, daemon=True)
        asking.start()
        asking.join(self._answer_seconds + HANGING_SECONDS)
        if asking.is_alive():
            # To abort its transaction would hang, too.
            self.client = None
            msg = "the brokers do not answer"
            raise ServerAway(msg)
        if failures:
            raise failures[0]

    def _note_place(self, error: Any, message: Any) -> None:
        if error is None:
            self.places[message.partition()] = message.offset()

    def _note_problem(self, error: Any) -> None:
        """Hear what the library says in the background: wrong passwords and lost connections show nowhere else."""
        if error.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            self.lost_a_broker = True
        if error.name() != "_ALL_BROKERS_DOWN":
            self.refusal = explain_refusal(error.name(), error.str())


def _serve(ask: Callable[[float], int], seconds: float) -> int:
    """Let the library call back; what it raises while it tells of a message is the error that counts.

    It goes on to call back with that error set, and Python then says that the call was wrong.
    """
    try:
        return ask(seconds)
    except SystemError as error:
        raise error.__cause__ or error from None
