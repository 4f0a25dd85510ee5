"""Generated streams: every row is a pure function of the seed and the row's number."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from anabranch.connectors.formats.encodings import encode_json_lines
from anabranch.connectors.formats.json_rows import parse_json_lines
from anabranch.connectors.generator.key_patterns import KeyPattern, Uniform, draw_normal
from anabranch.errors import FlowError
from anabranch.model import Admission, PlannedSplits, ReadOutcome, Split
from anabranch.model.identities import Identity

BLOCK_ROWS = 8192
"""Rows that share one jump of the random generator; a split may begin anywhere in a block."""

_SPLIT_ROWS = 16 * BLOCK_ROWS
_DRAWS_PER_ROW = 5
_ROW_BYTES = 24
_HEAD_START_SECONDS = 0.1
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
# Sums of values that are multiples of 1/64 are exact, in any order: answers can be compared bit for bit.
_VALUE_STEPS = 64
_ENDLESS = (
    "a generator without total_rows never ends, so there is no end to run to with available-now, once or backfill(); "
    "set generate(total_rows=…), or use the trigger 'continuous' or an interval such as '5s', and stop the flow"
)


@dataclass(frozen=True, slots=True)
class GeneratedValues:
    """Normal values around a mean that differs from key to key by ``key_sigma``.

    Examples:
        >>> volts = ab.GeneratedValues(mean=230.0, sigma=4.0, key_sigma=6.0)
        >>> ab.generate(total_rows=1_000, values=volts).values.mean
        230.0
    """

    mean: float = 100.0
    sigma: float = 15.0
    key_sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class GeneratorSource:
    """A stream of (key, time, value) rows; made by ``generate``."""

    rows_per_second: float | None
    total_rows: int | None
    keys: KeyPattern
    columns: tuple[str, str, str]
    values: GeneratedValues
    disorder_us: int
    start_us: int
    event_rows_per_second: float
    payload: str
    seed: int
    max_rows: int

    names_partitions: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """Name the rate and how keys are drawn."""
        rate = "as fast as possible" if self.rows_per_second is None else f"{self.rows_per_second:g} rows/s"
        return f"generator ({rate}, {self.keys.label})"

    @property
    def identity(self) -> Identity:
        """Name what the rows depend on but their number: they lie nowhere."""
        return Identity("generator", details={"seed": str(self.seed), "columns": ", ".join(self.columns)})

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        """Name the three columns."""
        key, time, value = self.columns
        return {key: pl.Int64(), time: pl.Datetime("us"), value: pl.Float64()}

    def check(self) -> None:
        """Raise nothing: what can be wrong was refused when the source was made."""

    def check_end(self) -> None:
        """Raise ``FlowError`` without ``total_rows``."""
        if self.total_rows is None:
            raise FlowError(_ENDLESS)

    def planner(self) -> GeneratorPlanner:
        """Return the driver side, which lets rows become due as time passes."""
        return GeneratorPlanner(self.rows_per_second, self.total_rows, self.max_rows)

    def read(self, split: Split, columns: Sequence[str] | None = None) -> Iterator[ReadOutcome]:
        """Make the rows of a split; any cut into splits gives the same rows."""
        first, last = split["from"], split["to"]
        blocks = range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS))
        frame = pl.concat(self._make_block(block, first, last) for block in blocks)
        if self.payload == "json":
            frame = self._through_json(frame)
        kept = [column for column in frame.columns if columns is None or column in columns]
        yield ReadOutcome(frame.select(kept))

    def _make_block(self, block: int, first: int, last: int) -> pl.DataFrame:
        rows = np.arange(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS, dtype=np.int64)
        within = (rows >= first) & (rows < last)
        draws = _draw_uniform(self.seed, block, _DRAWS_PER_ROW, BLOCK_ROWS)[:, within]
        rows = rows[within]
        seconds = rows / self.event_rows_per_second
        keys = self.keys.draw(draws[0], draws[1], seconds)
        delays_us = (draws[2] * (self.disorder_us + 1)).astype(np.int64)
        times_us = self.start_us + (seconds * 1e6).astype(np.int64) - delays_us
        values = self.values.mean + self.values.sigma * draw_normal(draws[3], draws[4])
        if self.values.key_sigma:
            values += self.values.key_sigma * _offset_of_keys(self.seed, keys)
        values = np.rint(values * _VALUE_STEPS) / _VALUE_STEPS
        key, time, value = self.columns
        return pl.DataFrame({key: keys, time: times_us, value: values}).with_columns(
            pl.col(time).cast(pl.Datetime("us"))
        )

    def _through_json(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Write the rows as JSON lines and parse them again: the same rows, at the cost of a JSON source."""
        key, time, value = self.columns
        text = encode_json_lines(frame.with_columns(pl.col(time).cast(pl.Int64)))
        parsed = parse_json_lines(text, {key: pl.Int64(), time: pl.Int64(), value: pl.Float64()})
        return parsed.frame.with_columns(pl.col(time).cast(pl.Datetime("us")))


class GeneratorPlanner:
    """Lets rows become due at a rate; the position holds the second of the start and the next row."""

    def __init__(self, rows_per_second: float | None, total_rows: int | None, max_rows: int) -> None:
        self._rows_per_second = rows_per_second
        self._total_rows = total_rows
        self._admission = Admission(max_rows)
        self._limit: int | None = None
        self._is_bound = False

    def bound(self) -> None:
        """Make all rows due now; a stream without ``total_rows`` has no end to run to."""
        if self._total_rows is None:
            raise FlowError(_ENDLESS)
        self._is_bound = True

    def limit_rows(self, rows: int | None) -> None:
        """Let a batch have no more than so many rows, beside ``max_rows``."""
        self._limit = rows

    def more(self, position: dict[str, Any] | None) -> bool:
        """Say whether rows are left before ``total_rows``."""
        return self._total_rows is None or (position or {}).get("next", 0) < self._total_rows

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        """Return the rows that became due; after a pause, what was missed follows in full batches."""
        if position:
            started_seconds, first = float(position["started"]), int(position["next"])
        else:
            # Spark makes its first batch at once, of nothing if nothing is due: let it have some rows.
            started_seconds, first = now_seconds - _HEAD_START_SECONDS, 0
        due = math.inf
        if self._rows_per_second is not None and not self._is_bound:
            due = max(1, math.floor((now_seconds - started_seconds) * self._rows_per_second))
        total = math.inf if self._total_rows is None else self._total_rows
        there = min(due, total)
        last = int(min(there, first + (self._admission.within(self._limit).max_rows or 0)))
        if last <= first:
            return PlannedSplits((), position or {}, rows=0, left_rows=0)
        splits = tuple(
            {"from": start, "to": min(end, last), "bytes": (min(end, last) - start) * _ROW_BYTES}
            for start, end in _cut_at_blocks(first, last)
        )
        left_rows = None if there == math.inf else int(there) - last
        return PlannedSplits(splits, {"started": started_seconds, "next": last}, rows=last - first, left_rows=left_rows)


def generate(  # noqa: PLR0913 - a generator is all knobs, by keyword, with defaults
    rows_per_second: float | None = 10_000,
    *,
    total_rows: int | None = None,
    keys: KeyPattern | int = 1000,
    columns: tuple[str, str, str] = ("key", "ts", "value"),
    values: GeneratedValues | None = None,
    disorder: str | datetime.timedelta = "2s",
    start: str | datetime.datetime = "2026-01-01",
    event_rows_per_second: float | None = None,
    payload: Literal["arrow", "json"] = "arrow",
    seed: int = 0,
    max_rows: int | None = None,
) -> GeneratorSource:
    """Make a stream of rows in real time: ``columns`` names its key, its event time and its value.

    ``keys`` is a number of keys (uniform), or ``uniform``, ``zipf`` or ``moving_normal``. Event time begins at
    ``start`` and advances by 1 / ``event_rows_per_second`` a row (by default the real rate); each row is up to
    ``disorder`` older than that, so a watermark delayed by ``disorder`` loses nothing. Rows depend on seed and row
    number alone, whatever the batches. With ``rows_per_second=None``, every batch has ``max_rows`` rows.
    ``payload="json"`` writes and parses JSON on the way, to cost what a JSON source costs.

    Examples:
        >>> made = ab.generate(1_000, keys=ab.zipf(100, 1.5), columns=("sensor", "ts", "volts"))
        >>> made.label
        'generator (1000 rows/s, zipf(1.5) over 100 keys)'
        >>> made.schema
        {'sensor': Int64, 'ts': Datetime(time_unit='us', time_zone=None), 'volts': Float64}
    """
    if rows_per_second is not None and (not isinstance(rows_per_second, int | float) or rows_per_second <= 0):
        msg = f"rows_per_second is {rows_per_second!r}; use a positive rate, or None for as fast as possible"
        raise FlowError(msg)
    if payload not in ("arrow", "json"):
        msg = f"the payload is {payload!r}; use 'arrow' or 'json'"
        raise FlowError(msg)
    if len(set(columns)) != 3:
        msg = f"columns must name three different columns (key, time, value), found {columns!r}"
        raise FlowError(msg)
    event_rate = event_rows_per_second or rows_per_second or 1_000_000.0
    default_max_rows = 1_000_000 if rows_per_second is None else max(1, int(rows_per_second * 10))
    return GeneratorSource(
        rows_per_second=rows_per_second,
        total_rows=total_rows,
        keys=Uniform(keys) if isinstance(keys, int) else keys,
        columns=columns,
        values=values or GeneratedValues(),
        disorder_us=_read_duration_us(disorder),
        start_us=_read_start_us(start),
        event_rows_per_second=float(event_rate),
        payload=payload,
        seed=seed,
        max_rows=default_max_rows if max_rows is None else max_rows,
    )


def _cut_at_blocks(first: int, last: int) -> Iterator[tuple[int, int]]:
    start = first
    while start < last:
        end = min(last, (start // _SPLIT_ROWS + 1) * _SPLIT_ROWS)
        yield start, end
        start = end


def _draw_uniform(seed: int, block: int, draws: int, rows: int) -> NDArray[np.float64]:
    # The raw stream of a bit generator never changes between NumPy versions; the streams of Generator's methods may.
    raw = np.random.Philox(key=seed, counter=[0, 0, block, 0]).random_raw(draws * rows)
    return (raw >> np.uint64(11)).astype(np.float64).reshape(draws, rows) * 2.0**-53


def _offset_of_keys(seed: int, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a standard normal number for every key, always the same one for the same key."""
    mixed = (keys.astype(np.uint64) + np.uint64(seed + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    first = (mixed >> np.uint64(32)).astype(np.float64) * 2.0**-32
    second = (mixed & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
    return draw_normal(first, second)


def _read_duration_us(length: str | datetime.timedelta) -> int:
    if isinstance(length, datetime.timedelta):
        return length // _MICROSECOND
    try:
        moved = pl.select(pl.lit(_EPOCH).cast(pl.Datetime("us")).dt.offset_by(length)).item()
    except PolarsError:
        msg = f"the disorder {length!r} is not a length of time; give '500ms', '2s', '1m' or a datetime.timedelta"
        raise FlowError(msg) from None
    return int((moved - _EPOCH) // _MICROSECOND)


def _read_start_us(start: str | datetime.date) -> int:
    try:
        moment = datetime.datetime.fromisoformat(str(start))
    except ValueError:
        msg = f"the start {start!r} is not a time; give '2026-01-01', '2026-01-01T12:00:00' or a datetime"
        raise FlowError(msg) from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // _MICROSECOND
