"""Result rows as messages: keys, values and headers, encoded in tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.connectors.databases.staged_rows import check_columns
from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.connectors.formats.value_encoders import JsonEncoder, ValueEncoder
from anabranch.connectors.redis.key_templates import as_text
from anabranch.errors import SinkError

KEY, VALUE, HEADERS, TIME = "key", "value", "headers", "timestamp_ms"


@dataclass(frozen=True, slots=True)
class MessageStaging:
    """What tasks get of a Kafka sink: how rows become messages, and no address or password."""

    label: str
    encoder: ValueEncoder
    key: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    """(header's name, column)."""
    timestamp: str | None
    tombstones: bool
    suffix: str = ".arrow"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if columns are missing or cannot be written."""
        named = [*self.key, *(column for _, column in self.headers), *([self.timestamp] if self.timestamp else [])]
        check_columns(schema, named, self.label)
        if self.timestamp and not isinstance(schema[self.timestamp], pl.Datetime):
            msg = f"timestamp of {self.label}: the column {self.timestamp!r} is {schema[self.timestamp]}, no time"
            raise SinkError(msg)
        if len(self.key) > 1:
            JsonEncoder().check({column: schema[column] for column in self.key})
        for column in (*self.key, *(column for _, column in self.headers)):
            as_text(column, schema[column], "iso")
        self.encoder.check(schema)

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file of messages."""
        values: list[bytes | None] = list(self.encoder.encode(frame))
        if self.tombstones:
            others = [column for column in frame.columns if column not in self.key]
            gone = frame.select(pl.all_horizontal(pl.lit(value=True), *(pl.col(name).is_null() for name in others)))
            values = [None if empty else value for value, empty in zip(values, gone.to_series(), strict=True)]
        columns: list[pl.Series] = [self._keys(frame), pl.Series(VALUE, values, dtype=pl.Binary)]
        for name, column in self.headers:
            columns.append(
                frame.select(as_text(column, frame.schema[column], "iso").alias(f"{HEADERS}.{name}")).to_series()
            )
        if self.timestamp:
            columns.append(frame.get_column(self.timestamp).dt.timestamp("ms").alias(TIME))
        return encode_arrow(pl.DataFrame(columns))

    def _keys(self, frame: pl.DataFrame) -> pl.Series:
        if not self.key:
            return pl.repeat(None, frame.height, dtype=pl.Binary, eager=True).alias(KEY)
        if len(self.key) > 1:
            return pl.Series(KEY, JsonEncoder().encode(frame.select(self.key)), dtype=pl.Binary)
        column = self.key[0]
        if isinstance(frame.schema[column], pl.Binary):
            return frame.get_column(column).alias(KEY)
        return frame.select(as_text(column, frame.schema[column], "iso").cast(pl.Binary).alias(KEY)).to_series()

    def publish(self, batch: int, staged: Sequence[Any], context: Mapping[str, Any]) -> None:
        """Raise ``SinkError``: only the driver publishes."""
        msg = f"{self.label} is published by the driver; batch {batch} was asked of a task's copy"
        raise SinkError(msg)

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: messages stay."""
        msg = f"{self.label} is changed by the driver; retracting after {after_batch} was asked of a task's copy"
        raise SinkError(msg)
