"""Write keys into partitions by the engine's own strategies, so that who reads them needs no exchange."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.routing import hash_keys
from anabranch.routing.assignments import AssignmentPlan, KeyAssignment
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.state.durable_files import write_whole

Key = int | str | bytes | bool | date | datetime | time | timedelta | Decimal
PARTITION = "partition"

_ALIASES = {"weight": "weight-hash"}
_MOST_CACHED_KEYS = 1 << 18
_POLL_SECONDS = 0.1
_MOST_POLLS = 3_000
"""Polls of a full queue without any room before it counts as stuck."""


class Partitioner:
    """Says which partition a key's rows go to; made for producers whose topics are read with ``exchange="ahead"``.

    ``strategy`` is one of ``key_by``'s that keep keys whole: *hash*, *modulo*, *weight* (with ``weights=``), … are
    computed from the key alone, so any number of producers may use them. *least-key*, *least-count*,
    *least-count-history* and *weight-random* remember where they put keys: one producer uses them, and ``save``s what
    it knows before it sends. With ``edges``, keys may change partitions where windows begin, and nowhere else: windows
    as long as that, or as a part of it, have each key in one partition.

    Examples:
        >>> partitioner = ab.Partitioner("modulo", partitions=4, keys="sensor")
        >>> partitioner(7)
        3
        >>> partitioner.of_frame(frame).to_list()
        [1, 2, 1, 1]
        >>> [(partition, part.height) for partition, part in partitioner.split_frame(frame)]
        [(1, 3), (2, 1)]
    """

    def __init__(
        self,
        strategy: str = "hash",
        *,
        partitions: int,
        keys: str | Sequence[str] = (),
        time: str | None = None,
        edges: str | timedelta | None = None,
        seed: int = 0,
        sample: pl.DataFrame | None = None,
        **options: Any,
    ) -> None:
        """``keys`` and ``time`` name columns of frames. ``sample``, rows of the past, is what *ranges* are cut by."""
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            msg = f"Partitioner: partitions is {partitions!r}; give the number of the topic's partitions, at least 1"
            raise FlowError(msg)
        edge_us = None if edges is None else parse_duration(edges, "Partitioner's edges")
        self.keys: tuple[str, ...] = (keys,) if isinstance(keys, str) else tuple(keys)
        self.time = time
        plan = AssignmentPlan(_ALIASES.get(strategy, strategy), partitions, _freeze(options), edge_us, seed)
        self._assignment = KeyAssignment(plan, None if sample is None else self._gather(sample))
        self._batches: dict[Any, KeyBatch] = {}

    # -- one row at a time -----------------------------------------------------------------------------------------

    def __call__(self, *key: Key, at: datetime | int | None = None) -> int:
        """Return the partition of a row with this key, given as the flow that reads it sees it.

        ``at`` is its event time, a datetime (UTC, if it says nothing else) or microseconds since 1970; needed with
        edges.
        """
        # 1, True and 1.0 are equal to Python, and different keys.
        known = (key, *map(type, key))
        batch = self._batches.get(known)
        if batch is None:
            batch = _hash_one(key)
            if len(self._batches) >= _MOST_CACHED_KEYS:
                self._batches.clear()
            self._batches[known] = batch
        return self._assignment.assign_one(batch, None if at is None else _to_microseconds(at))

    # -- many rows at a time ---------------------------------------------------------------------------------------

    def of_frame(self, frame: pl.DataFrame) -> pl.Series:
        """Return the partition of each row of a frame."""
        missing = [column for column in (*self.keys, *self._times()) if column not in frame.columns]
        if missing or not self.keys:
            wanted = f"no column {', '.join(missing)}" if missing else "no keys are named: Partitioner(…, keys=…)"
            msg = f"Partitioner: {wanted}; the frame has {', '.join(frame.columns)}"
            raise FlowError(msg)
        nulls = [column for column in (*self.keys, *self._times()) if frame.get_column(column).null_count()]
        if nulls:
            msg = f"Partitioner: {', '.join(nulls)} is null in some rows; leave them out, or fill them, first"
            raise FlowError(msg)
        times_us = None
        if self._has_edges:
            if self.time is None:
                msg = "Partitioner: keys change partitions at edges of event time; name its column: time=…"
                raise FlowError(msg)
            times_us = _column_us(frame.get_column(self.time))
        return pl.Series(PARTITION, self._assignment.assign(KeyBatch.of(frame, self.keys), times_us))

    def split_frame(self, frame: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield each partition that gets rows, with its rows in their order."""
        slots = self.of_frame(frame)
        for partition in slots.unique().sort().to_list():
            yield partition, frame.filter(slots == partition)

    # -- what is known of it ---------------------------------------------------------------------------------------

    @property
    def strategy(self) -> str:
        return self._assignment.plan.strategy

    @property
    def partitions(self) -> int:
        """How many partitions rows go to from the latest edge on."""
        return self._assignment.slots

    @property
    def is_computed(self) -> bool:
        """Whether the key alone says where it goes, for good: then who reads can check every row."""
        return self._assignment.is_computed and not self._has_edges

    def finds(self, keys: Sequence[str]) -> bool:
        """Say whether rows of equal ``keys`` are in one partition, and which, is known from these columns."""
        return self.is_computed and set(self.keys or keys) <= set(keys)

    def find(self, frame: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.int32]:
        """Return the partition of each row, by columns that ``finds`` said are enough."""
        return self._assignment.assign(KeyBatch.of(frame, self.keys or keys))

    def grow(self, partitions: int) -> None:
        """Use the partitions that a topic got in addition, from the next edge on."""
        if "weights" in self._assignment.plan.options:
            msg = "Partitioner: a new partition has no weight yet; make a new partitioner with one weight a partition"
            raise FlowError(msg)
        self._assignment.grow(partitions)

    def __repr__(self) -> str:
        named = "".join(f", {name}={value!r}" for name, value in (("keys", self.keys), ("time", self.time)) if value)
        return f"Partitioner({self.strategy!r}, partitions={self.partitions}{named})"

    # -- kept between starts ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write down where keys are; after a crash, what was sent later than this is not known."""
        write_whole(Path(path), json.dumps(self.to_json()).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Go on from where ``save`` was."""
        try:
            return cls.from_json(json.loads(Path(path).read_text()))
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{os.fspath(path)} is no saved Partitioner ({error}); give the file that save() wrote"
            raise FlowError(msg) from error

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"keys": list(self.keys), "time": self.time, "assignment": self._assignment.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        made = cls.__new__(cls)
        made.keys = tuple(data["keys"])
        made.time = data["time"]
        made._assignment = KeyAssignment.from_json(data["assignment"])
        made._batches = {}
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _has_edges(self) -> bool:
        return self._assignment.plan.edge_us is not None

    def _times(self) -> tuple[str, ...]:
        return (self.time,) if self._has_edges and self.time is not None else ()

    def _gather(self, sample: pl.DataFrame) -> KeySample:
        if not self.keys:
            msg = "Partitioner: a sample has keys in columns; name them: keys=…"
            raise FlowError(msg)
        batch = KeyBatch.of(sample, self.keys)
        return KeySample.gather(batch.hashes, values=batch.values)


class ProducesMessages(Protocol):
    """What is used of ``confluent_kafka.Producer``."""

    def produce(self, topic: str, value: Any = ..., key: Any = ..., partition: int = ..., **others: Any) -> None: ...

    def poll(self, timeout: float) -> int: ...


def produce_frame(
    producer: ProducesMessages,
    topic: str,
    frame: pl.DataFrame,
    partitioner: Partitioner,
    *,
    values: Callable[[pl.DataFrame], Sequence[bytes]] | None = None,
    save_to: str | os.PathLike[str] | None = None,
    on_delivery: Callable[..., None] | None = None,
) -> pl.Series:
    """Send the rows of a frame, each to its partition, and return the partitions.

    Values are JSON objects unless ``values`` encodes them; keys are the key columns as text. The partitioner is saved
    before anything is sent. The producer's queue may still hold rows afterwards: call its ``flush`` where that counts.

    Examples:
        >>> class Producer:  # of confluent_kafka
        ...     def produce(self, topic, value, key, partition):
        ...         print(topic, partition, key, value)
        ...
        ...     def poll(self, timeout):
        ...         return 0
        >>> partitioner = ab.Partitioner("modulo", partitions=4, keys="sensor")
        >>> _ = ab.produce_frame(Producer(), "readings", frame.select("sensor", "volts").head(2), partitioner)
        readings 1 b'1' b'{"sensor":1,"volts":230.0}'
        readings 2 b'2' b'{"sensor":2,"volts":229.5}'
    """
    slots = partitioner.of_frame(frame)
    if save_to is not None:
        partitioner.save(save_to)
    if frame.is_empty():
        return slots
    texts = frame.select(
        pl.concat_str([_as_text(name, frame.schema[name]) for name in partitioner.keys], separator=",")
    )
    keys = texts.to_series().cast(pl.Binary).to_list()
    payloads = _to_json(frame) if values is None else values(frame)
    # Messages have the time at which they are sent: brokers delete by it, and would delete old events at once.
    others = {} if on_delivery is None else {"on_delivery": on_delivery}
    for key, payload, slot in zip(keys, payloads, slots.to_list(), strict=True):
        _produce(producer, topic, payload, key, slot, others)
    producer.poll(0)
    return slots


def _produce(
    producer: ProducesMessages, topic: str, value: bytes, key: bytes, slot: int, other: dict[str, Any]
) -> None:
    for _ in range(_MOST_POLLS):
        try:
            producer.produce(topic, value, key=key, partition=slot, **other)
        except BufferError:
            # The queue is full: what was delivered makes room.
            producer.poll(_POLL_SECONDS)
        else:
            return
    msg = f"the producer's queue has had no room for {_MOST_POLLS * _POLL_SECONDS:.0f} s; is the broker there?"
    raise FlowError(msg)


def _to_json(frame: pl.DataFrame) -> list[bytes]:
    binary = [name for name, dtype in frame.schema.items() if dtype == pl.Binary]
    if binary:
        msg = f"produce_frame: JSON has no bytes, and {', '.join(binary)} is Binary; encode it first, or give values=…"
        raise FlowError(msg)
    # A space between date and time, as Polars writes it, is not what ISO 8601 says.
    frame = frame.with_columns(pl.col(pl.Datetime).dt.to_string("iso:strict"))
    return frame.write_ndjson().encode().splitlines()


def _hash_one(key: tuple[Key, ...]) -> KeyBatch:
    if not key or any(part is None for part in key):
        msg = f"Partitioner: {key} is no key; give one value for each key column, none of them None"
        raise FlowError(msg)
    frame = pl.DataFrame({str(number): [part] for number, part in enumerate(key)})
    return KeyBatch(hash_keys(frame, frame.columns).to_numpy(), frame.to_series() if len(key) == 1 else None)


def _as_text(name: str, dtype: pl.DataType) -> pl.Expr:
    return pl.col(name).bin.encode("hex") if dtype == pl.Binary else pl.col(name).cast(pl.String)


def _freeze(options: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _column_us(column: pl.Series) -> NDArray[np.int64]:
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.timestamp("us").to_numpy()
    msg = f"Partitioner: {column.name!r} is {column.dtype}, not a Datetime; make it one first"
    raise FlowError(msg)


def _to_microseconds(at: datetime | int) -> int:
    if isinstance(at, datetime):
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return int(at)
