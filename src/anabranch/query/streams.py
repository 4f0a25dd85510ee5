"""Streams: the fluent way to write a flow, checked as it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.model import (
    FLOW_CLOCK,
    Aggregate,
    AggregateSpec,
    Clock,
    CountWindowSpec,
    DistinctSpec,
    LatePolicy,
    Sink,
    TopKSpec,
    WindowSpec,
)
from anabranch.model.balance import AUTO, Balance, NamedStrategy, Routing
from anabranch.model.columns import HASH, ORDER, PARTITION, SEEN, TIME, WINDOW
from anabranch.model.exchanges import ExchangeChoice
from anabranch.model.joins import ClosedEnds, JoinKind
from anabranch.model.lookups import LookupTable, MissingPolicy
from anabranch.model.renamed import renamed_keywords
from anabranch.model.schema_forms import SchemaLike
from anabranch.model.times import DEFAULT_GROUPS, ClockLevel
from anabranch.model.windows import UnfilledPolicy
from anabranch.query.asof_joining import AsofKind, AsofStrategy, AsofTerms, join_asof, read_by
from anabranch.query.column_checks import (
    ColumnTypes,
    check_key_columns,
    check_same_columns,
    check_time_column,
    find_column,
    read_schema,
)
from anabranch.query.endpoint_checks import (
    check_aggregates,
    check_endpoint_name,
    check_function,
    check_sink,
    describe_given,
)
from anabranch.query.event_times import Duration, Moment, describe_limits, make_clock, make_limits
from anabranch.query.join_where import join_where
from anabranch.query.joining import JoinTerms, Names, Within, join_streams, read_keys
from anabranch.query.labels import describe_clock, describe_columns, describe_window
from anabranch.query.lookups import Lookup, lookup_stream
from anabranch.query.merging import LocalMerge, bind_sink, make_routing
from anabranch.query.nodes import (
    EventTime,
    Expression,
    Filter,
    FlatMap,
    LateRows,
    MapBatches,
    Node,
    Output,
    Select,
    Stateless,
    Union,
    Watermark,
    WithColumns,
    describe,
    describe_all,
    dry_run,
)
from anabranch.query.processing import order_stream, process_stream, puts_late_rows_aside
from anabranch.query.stateful import add_operator
from anabranch.query.windowing import (
    check_key_names,
    find_lost_time,
    make_count_window,
    make_session,
    make_window,
)

if TYPE_CHECKING:
    from anabranch.operators.processors.processor import FrameProcessor, Processor
    from anabranch.query.graph import FlowGraph

_RESERVED = (HASH, ORDER, PARTITION, SEEN, TIME, WINDOW)


_BALANCED = Balance()


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows on their way; every method returns a new stream and leaves this one as it is.

    Examples:
        >>> readings.filter("volts < 207").select("sensor", kv="volts / 1000")
        <Stream of 'example' behind select sensor, kv=volts / 1000: sensor Int64, kv Float64>
    """

    graph: FlowGraph
    node: Node
    keys: tuple[str, ...] = ()
    # Windows in time, or by rows: at most one of them.
    windowing: WindowSpec | None = None
    counting: CountWindowSpec | None = None
    routing: Routing = field(default_factory=Routing)

    def __repr__(self) -> str:
        keyed = f"; keyed by {', '.join(self.keys)}" if self.keys else ""
        window = self.windowing or self.counting
        windowed = f"; in {describe_window(window)}" if window is not None else ""
        columns = describe_columns(self.schema)
        return f"<Stream of {self.graph.name!r} behind {self.node.label}: {columns}{keyed}{windowed}>"

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns and types at this point."""
        return dict(self.node.schema)

    def filter(self, predicate: Expression) -> Stream:
        """Keep the rows for which the predicate, a Polars expression or SQL, is true.

        Examples:
            >>> collect(readings.filter(pl.col("volts") < 207).select("sensor", "volts"))
            [(1, 206.25)]
            >>> readings.filter("volts < 207 AND sensor = 1").schema == readings.schema
            True
        """
        return self._step(Filter(predicate), f"filter {describe(predicate)}")

    def select(self, *columns: Expression, **named: Expression) -> Stream:
        """Keep only these columns: names, Polars expressions or SQL.

        Examples:
            >>> readings.select("sensor", pl.col("ts").dt.date().alias("day"), kv="volts / 1000").schema
            {'sensor': Int64, 'day': Date, 'kv': Float64}
        """
        return self._step(Select(columns, named), f"select {describe_all(columns, named)}")

    def with_columns(self, *columns: Expression, **named: Expression) -> Stream:
        """Add or replace columns, by Polars expressions or SQL.

        Examples:
            >>> more = readings.with_columns(low=pl.col("volts") < 207, half="volts / 2")
            >>> collect(more.select("low", "half").filter("low"))
            [(True, 103.125)]
        """
        return self._step(WithColumns(columns, named), f"with_columns {describe_all(columns, named)}")

    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        schema: SchemaLike | None = None,
    ) -> Stream:
        """Let a function turn Polars frames into frames.

        The same rows may come in other frames on a replay: the function must treat each row alike wherever it is cut.

        Examples:
            >>> def in_kilovolts(frame):
            ...     return frame.select("sensor", kv=pl.col("volts") / 1000)
            >>> readings.map_batches(in_kilovolts).schema
            {'sensor': Int64, 'kv': Float64}
        """
        check_function("map_batches", function)
        label = f"map_batches {getattr(function, '__name__', 'function')}"
        if not schema:
            return self._step(MapBatches(function), label)
        declared = read_schema("map_batches", schema)
        return self._add(MapBatches(function, declared), label, declared)

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]],
        *,
        schema: SchemaLike,
    ) -> Stream:
        """Turn each row into any number of rows of the given schema. Row by row: slower than ``map_batches``.

        Examples:
            >>> def halves(row):
            ...     return [{"sensor": row["sensor"], "half": row["volts"] / 2}] * 2
            >>> low = readings.filter("volts < 207")
            >>> collect(low.flat_map(halves, schema={"sensor": pl.Int64, "half": pl.Float64}))
            [(1, 103.125), (1, 103.125)]
        """
        check_function("flat_map", function)
        declared = read_schema("flat_map", schema)
        label = f"flat_map {getattr(function, '__name__', 'function')}"
        return self._add(FlatMap(function, declared), label, declared)

    def union(self, *others: Stream) -> Stream:
        """Put streams of the same columns together.

        Examples:
            >>> low, high = readings.filter("volts < 207"), readings.filter("volts > 230")
            >>> collect(low.union(high).select("volts"))
            [(206.25,), (231.0,)]
        """
        for other in others:
            _check_stream("union", other)
            if other.graph is not self.graph:
                msg = f"union joins streams of one flow; one is of {self.graph.name!r}, one of {other.graph.name!r}"
                raise FlowError(msg)
            check_same_columns(self.schema, other.schema)
        inputs = (self.node.id, *(other.node.id for other in others))
        times = {stream.node.time for stream in (self, *others)}
        time = self.node.time if len(times) == 1 else None
        return replace(self, node=self.graph.add(Union(), inputs, self.schema, f"union of {len(inputs)}", time))

    def join(  # noqa: PLR0913 - one keyword for each thing that a flow may say of a join
        self,
        other: Stream,
        on: Names | None = None,
        *,
        left_on: Names | None = None,
        right_on: Names | None = None,
        how: JoinKind = "inner",
        within: Within | None = None,
        closed: ClosedEnds = "both",
        window: Duration | None = None,
        every: Duration | None = None,
        ttl: Duration | None = None,
        suffix: str = "_right",
        align: Duration | None = None,
        routing: str | NamedStrategy = AUTO,
        balance: Balance | None = _BALANCED,
        name: str | None = None,
    ) -> Stream:
        """Put rows of two streams with equal keys together, in pairs.

        ``within`` says how far apart in event time they may be: ``"10s"`` in both directions, or how long before and
        how long after the left row the right one may be; ``closed`` which ends count. With ``window`` both must be in
        the same window. With neither, every row meets all that ever came, or came within the ``ttl``.

        ``how`` is inner, left, right, full, semi or anti; rows without a partner come out as soon as none can come any
        more. Columns of the right stream that the left one has, too, get the suffix; keys are there once, under their
        name on the left. The event time of a pair is the later of the two, in the column ``joined_at``; that of a row
        without a partner is the last moment at which one could have come.

        A side whose watermark is further than ``align`` ahead of the other's is held back at its source until the other
        catches up: then state is bounded by time, however different the two are in speed.

        Examples:
            >>> low = readings.watermark("ts").filter("volts < 207")
            >>> high = readings.watermark("ts").filter("volts > 230")
            >>> pairs = low.join(high, on="sensor", within="1m")
            >>> collect(pairs.select("sensor", "volts", "volts_right"))
            [(1, 206.25, 231.0)]
        """
        _check_stream("join", other)
        terms = JoinTerms(how, within, closed, window, every, ttl, suffix, align)
        placing = make_routing(routing, balance, "auto", None, "join")
        return join_streams(self, other, read_keys(on, left_on, right_on), terms, placing, name or "join")

    def join_where(  # noqa: PLR0913 - one keyword for each thing that a flow may say of a join
        self,
        other: Stream,
        predicate: Expression | None = None,
        *,
        within: Within | None = None,
        closed: ClosedEnds = "both",
        window: Duration | None = None,
        every: Duration | None = None,
        ttl: Duration | None = None,
        suffix: str = "_right",
        align: Duration | None = None,
        routing: str | NamedStrategy = AUTO,
        balance: Balance | None = _BALANCED,
        name: str | None = None,
    ) -> Stream:
        """Put rows of two streams together, in pairs that fulfil a predicate; without one, in all pairs.

        The predicate is a Polars expression or SQL over columns of both streams; those of the right one that the left
        one has, too, have the suffix, as in the result, which has all columns of both. Time is said as in ``join``.

        Columns that must be equal are keys, and so are integers of which a few are near each other. Without any, rows
        are dealt to a grid of slots, in which all pairs meet. Numbers or times that must be near, such as
        ``|a - b| <= 5``, are searched; else every pair is tried.

        Examples:
            >>> low = readings.watermark("ts").filter("volts < 207")
            >>> others = readings.watermark("ts")
            >>> pairs = low.join_where(others, "volts_right - volts > 24", within="1h")
            >>> collect(pairs.select("sensor", "volts", "sensor_right", "volts_right"))
            [(1, 206.25, 1, 231.0)]
        """
        _check_stream("join_where", other)
        terms = JoinTerms("inner", within, closed, window, every, ttl, suffix, align)
        placing = make_routing(routing, balance, "auto", None, "join_where")
        return join_where(self, other, predicate, terms, placing, name or "join")

    def join_asof(  # noqa: PLR0913 - one keyword for each thing that a flow may say of a join
        self,
        other: Stream,
        on: str | None = None,
        *,
        left_on: str | None = None,
        right_on: str | None = None,
        by: Names | None = None,
        by_left: Names | None = None,
        by_right: Names | None = None,
        strategy: AsofStrategy = "backward",
        tolerance: Duration | None = None,
        how: AsofKind = "left",
        allow_exact_matches: bool = True,
        suffix: str = "_right",
        align: Duration | None = None,
        routing: str | NamedStrategy = AUTO,
        balance: Balance | None = _BALANCED,
        name: str | None = None,
    ) -> Stream:
        """Add to each row the version of its key, in a stream of versions, that was valid at the row's time.

        That is the newest row of the other stream with the same key, ``by``, that is not after this one, by event time,
        or is before it, without ``allow_exact_matches``; and at most as old as the ``tolerance``. ``on`` names the
        columns of event time, which both streams must follow, and may be left out. Of versions with equal times, the
        one that came last counts.

        A row comes out when the watermark has passed its time, so that versions which come out of order count, with its
        own event time. Rows without a version have nulls, or are dropped where ``how`` is inner. Columns of the other
        stream that this one has, too, get the suffix; keys are there once. ``align`` holds back who is ahead, as in
        ``join``.

        Examples:
            >>> timed = readings.watermark("ts")
            >>> before = timed.select("sensor", "ts", last="volts")
            >>> steps = timed.join_asof(before, by="sensor", allow_exact_matches=False, how="inner")
            >>> collect(steps.select("sensor", "last", "volts"))
            [(1, 206.25, 231.0), (1, 230.0, 206.25)]
        """
        _check_stream("join_asof", other)
        terms = AsofTerms(on, left_on, right_on, strategy, tolerance, how, allow_exact_matches, suffix, align)
        placing = make_routing(routing, balance, "auto", None, "join_asof")
        return join_asof(self, other, read_by(by, by_left, by_right), terms, placing, name or "join_asof")

    def lookup(
        self,
        table: LookupTable,
        on: str | Iterable[str],
        *,
        columns: ColumnTypes | Iterable[str] | None = None,
        missing: MissingPolicy = "null",
        cache: int = 1_000_000,
        expires: Duration | None = "10m",
    ) -> Stream:
        """Add the columns of the table's row with the same key: a stream–table join, in the task that has the rows.

        Rows that the table has nothing for get nulls, are dropped, or are rejected to the dead-letter sink. Each worker
        keeps up to ``cache`` keys, as they were when it fetched them, until they expire.

        Examples:
            >>> places = pl.DataFrame({"sensor": [1], "town": ["Riga"]})
            >>> collect(readings.lookup(ab.frame_table(places), on="sensor", missing="drop").select("town", "volts"))
            [('Riga', 206.25), ('Riga', 230.0), ('Riga', 231.0)]
        """
        return lookup_stream(self, table, on, columns, missing, cache, expires)

    def key_by(
        self,
        *columns: str,
        routing: str | NamedStrategy = AUTO,
        balance: Balance | None = _BALANCED,
        exchange: ExchangeChoice = "auto",
        merge: LocalMerge | None = None,
    ) -> Stream:
        """Name the columns whose values belong together. Rows with a null key go to the dead-letter sink.

        ``routing`` names a strategy that spreads keys over slots, from the first row on, if need be with its options
        (``NamedStrategy``); ``auto`` moves and splits hot keys as needed.
        ``balance`` says how even slots must be, and when to look again; None leaves keys where they are.
        ``exchange`` says how rows of a key come together, ``merge`` when readers send what they merged of them.

        Examples:
            >>> readings.key_by("sensor", routing="least-count").keys
            ('sensor',)
            >>> collect(readings.key_by("sensor", balance=None, exchange="routed").agg(rows=ab.count()))
            [(1, 3), (2, 1)]
        """
        check_key_columns("key_by", columns, self.schema)
        return replace(self, keys=columns, routing=make_routing(routing, balance, exchange, merge))

    @renamed_keywords("watermark", ahead="future")
    def watermark(  # noqa: PLR0913 - one keyword for each thing that a flow may say of its time
        self,
        column: str,
        delay: Duration = "0s",
        *,
        per: ClockLevel = "flow",
        groups: int = DEFAULT_GROUPS,
        idle: Duration | None = None,
        behind: Duration | None = None,
        forget: Duration | None = None,
        earliest: Moment | None = "1970-01-01",
        future: Duration | None = "1d",
    ) -> Stream:
        """Follow event time by this column; rows more than the delay behind the latest may be late.

        ``per`` says behind whose latest: that of the whole *flow*, of the slowest source *partition*, of each *slot*,
        of each of so many ``groups`` of keys, or of each *key*. Who says nothing for as long as ``idle`` (by the wall
        clock), or is as far as ``behind`` the flow's median time, holds nothing open and nobody up; an idle key's own
        time is dropped after ``forget``, which is as long as ``idle`` unless said. Rows of a source whose time is null,
        before ``earliest`` or as far as ``future`` ahead of the wall clock go to the dead-letter sink.

        Examples:
            >>> timed = readings.watermark("ts", delay="2s", per="key", idle="30s", future="1m")
            >>> collect(timed.key_by("sensor").window("10s").agg(rows=ab.count()).select("sensor", "rows"))
            [(1, 1), (1, 2), (2, 1)]
        """
        check_time_column(column, self.schema)
        operation = Watermark(
            column, make_clock(per, delay, groups, idle, behind, forget), make_limits(earliest, future)
        )
        label = f"watermark {column}, {describe_clock(operation.clock)}{describe_limits(operation.limits)}"
        time = EventTime(column, clock=operation.clock)
        return replace(self, node=self.graph.add(operation, (self.node.id,), self.schema, label, time))

    def window(
        self,
        size: Duration,
        *,
        every: Duration | None = None,
        offset: Duration = "0s",
        late: LatePolicy = "drop",
        lateness: Duration = "0s",
        early: Duration | None = None,
    ) -> Stream:
        """Cut time into windows of this size, a new one every ``every`` (by default, one after the other).

        Rows that come when all their windows have closed are dropped, or handed out by ``late_rows()`` (*side*), or
        change the result, which is emitted again, for as long as ``lateness`` after the window closed (*update*).
        ``early`` emits results so far whenever the watermark passes a multiple of it.

        Examples:
            >>> windows = readings.watermark("ts").key_by("sensor").window("10s", every="5s")
            >>> collect(windows.agg(rows=ab.count()).select("sensor", "rows"))
            [(1, 1), (1, 1), (1, 2), (1, 2), (2, 1), (2, 1)]
            >>> corrected = readings.watermark("ts").key_by("sensor").window("10s", late="update", lateness="1m")
            >>> list(corrected.agg(rows=ab.count()).schema)
            ['window_start', 'window_end', 'emission', 'sensor', 'rows']
        """
        return self._windowed(make_window(size, every, offset, late, lateness, early))

    def session(
        self, gap: Duration, *, late: LatePolicy = "drop", lateness: Duration = "0s", early: Duration | None = None
    ) -> Stream:
        """Put rows of a key together until it is silent for this long; ``late`` and ``early`` as for windows.

        Examples:
            >>> sessions = readings.watermark("ts").key_by("sensor").session("5s").agg(rows=ab.count())
            >>> collect(sessions.select("sensor", start=pl.col("window_start").dt.second(), rows="rows"))
            [(1, 1, 2), (1, 14, 1), (2, 2, 1)]
        """
        return self._windowed(make_session(gap, late, lateness, early))

    def count_window(
        self, rows: int, *, every: int | None = None, idle: Duration | None = None, unfilled: UnfilledPolicy = "emit"
    ) -> Stream:
        """Put so many rows of a key together, in the order they come, beginning anew every ``every`` rows.

        No event time is needed. Results say in ``window`` which of the key's windows they are, from 0. A drain emits
        those that are not full, too. A key without a row for ``idle``, by the wall clock, is forgotten: the windows
        that it had begun are emitted or dropped, as ``unfilled`` says.

        Examples:
            >>> collect(readings.key_by("sensor").count_window(2).agg(rows=ab.count(), lowest=ab.min("volts")))
            [(0, 1, 2, 206.25), (0, 2, 1, 229.5), (1, 1, 1, 231.0)]
        """
        self._needs_keys("count_window")
        window = make_count_window(rows, every, idle, unfilled)
        check_key_names("count_window", self.keys, window)
        return replace(self, windowing=None, counting=window)

    def agg(
        self, *unnamed: object, ttl: Duration | None = None, name: str | None = None, **aggregates: Aggregate
    ) -> Stream:
        """Aggregate per key and window; without a window, emit each key's new values in every batch that has it.

        ``ttl`` forgets a key of a running aggregate after that much silence.

        Examples:
            >>> keyed = readings.watermark("ts").key_by("sensor")
            >>> collect(keyed.window("10s").agg(rows=ab.count(), name="per-sensor").select("sensor", "rows"))
            [(1, 1), (1, 2), (2, 1)]
            >>> keyed.agg(rows=ab.count(), ttl="1h").schema
            {'sensor': Int64, 'rows': Int64}
        """
        self._needs_keys("agg")
        check_aggregates(unnamed, aggregates)
        self._refuse_ttl_of_windows("agg", ttl)
        framing = (self.windowing, self._time_column(), _optional(ttl), self._clock(), self.counting)
        spec = AggregateSpec(self.keys, dict(aggregates), *framing)
        label = f"agg {', '.join(f'{k}={v.kind}' for k, v in aggregates.items())}"
        return add_operator(self, spec, name or "agg", label)

    def top_k(
        self,
        k: int,
        by: str,
        *,
        columns: Iterable[str] | None = None,
        descending: bool = True,
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """Keep each key's k rows with the largest ``by`` (smallest if not descending), with a ``rank`` from 1.

        Examples:
            >>> collect(readings.key_by("sensor").top_k(2, by="volts", columns=[]))
            [(1, 1, 231.0), (1, 2, 230.0), (2, 1, 229.5)]
        """
        self._needs_keys("top_k")
        self._refuse_ttl_of_windows("top_k", ttl)
        if not isinstance(k, int) or k < 1:
            msg = f"top_k: k must be a whole number, at least 1, got {k!r}"
            raise FlowError(msg)
        find_column("top_k", by, self.schema)
        kept = tuple(columns) if columns is not None else tuple(c for c in self.schema if c not in (*self.keys, by))
        for column in kept:
            find_column("top_k", column, self.schema)
        framing = (self.windowing, self._time_column(), _optional(ttl), self._clock(), self.counting)
        spec = TopKSpec(self.keys, by, k, descending, kept, *framing)
        return add_operator(self, spec, name or "top_k", f"top {k} by {by}")

    def distinct(self, *columns: str, ttl: Duration | None = None, name: str | None = None) -> Stream:
        """Let the first row of each combination of these columns (or of the keys) pass; after the ttl, it may again.

        Examples:
            >>> collect(readings.distinct("sensor", ttl="1d").select("sensor", "volts"))
            [(1, 230.0), (2, 229.5)]
        """
        if columns:
            check_key_columns("distinct", columns, self.schema)
        stream = self.key_by(*columns) if columns else self
        stream._needs_keys("distinct")
        if self.windowing is not None or self.counting is not None:
            msg = "distinct has no windows; leave them out and give a ttl instead"
            raise FlowError(msg)
        spec = DistinctSpec(stream.keys, stream._time_column(), _optional(ttl), stream._clock())
        return add_operator(stream, spec, name or "distinct", "distinct")

    def ordered(
        self, by: str, *, idle: Duration | None = None, late: LatePolicy = "drop", name: str | None = None
    ) -> Stream:
        """Hand each slot's rows on in the order of this time, across batches: a row once the watermark has passed it.

        Without a watermark before it, follows the slowest source partition, which is let go after being ``idle``. Rows
        that come when later ones may have gone on are dropped, or handed out by ``late_rows()`` (*side*).

        Examples:
            >>> collect(readings.key_by("sensor").ordered("ts", idle="5s").select("sensor", "volts"))
            [(1, 206.25), (1, 230.0), (1, 231.0), (2, 229.5)]
        """
        return order_stream(self, by, idle, late, name)

    def process(
        self,
        processor: Processor | FrameProcessor,
        *,
        schema: SchemaLike,
        name: str | None = None,
    ) -> Stream:
        """Let a processor handle each key's rows, with state and timers, and emit rows of this schema.

        Right behind ``ordered()``, it gets them in the order of their time, also across batches.

        Examples:
            >>> class Number(ab.Processor):
            ...     rows = ab.value(pl.Int64(), default=0)
            ...
            ...     def on_time(self, row, state, timers):
            ...         state.rows += 1
            ...         yield {"number": state.rows, "volts": row["volts"]}
            >>> keyed = readings.key_by("sensor").ordered("ts")
            >>> collect(keyed.process(Number(), schema={"sensor": pl.Int64, "number": pl.Int64, "volts": pl.Float64}))
            [(1, 1, 230.0), (1, 2, 206.25), (1, 3, 231.0), (2, 1, 229.5)]
        """
        return process_stream(self, processor, schema, name)

    def late_rows(self) -> Stream:
        """Return the rows that came too late for the windows before, as they came; say ``late="side"`` there.

        Examples:
            >>> windows = readings.watermark("ts").key_by("sensor").window("10s", late="side").agg(rows=ab.count())
            >>> windows.late_rows().schema == readings.schema
            True
        """
        if not puts_late_rows_aside(self.node.operation):
            msg = 'late_rows() comes right behind windows that put late rows aside: .window("10s", late="side").agg(…)'
            raise FlowError(msg)
        source = self.graph.nodes[self.node.inputs[0]]
        node = self.graph.add(
            LateRows(), (self.node.id,), source.schema, f"late rows of {self.node.label}", source.time
        )
        return Stream(self.graph, node)

    def write(self, sink: Sink, *, name: str | None = None, formerly: str | None = None) -> Stream:
        """Send this stream to a sink; returns the stream, so that it may go to others too.

        A checkpoint knows a sink by what and where it is; ``name`` and ``formerly`` are those of ``Flow.read``.

        Examples:
            >>> _ = readings.write(ab.parquet("readings"), name="all").write(ab.console())
            >>> [sink.label.split()[0] for sink in flow.sinks]
            ['parquet', 'console']
        """
        check_sink(sink)
        check_endpoint_name("write", name, [output.name for output in self.graph.outputs()])
        index = self.graph.add_sink(sink := bind_sink(sink, self.node))
        self.graph.add(Output(sink, index, name, formerly), (self.node.id,), self.schema, sink.label, None)
        return self

    # -- how the methods above are made ---------------------------------------------------------------------------

    def _step(self, operation: Stateless, label: str) -> Stream:
        return self._add(operation, label, dry_run(operation, self.node.schema, label))

    def _add(self, operation: Stateless | Lookup, label: str, schema: dict[str, pl.DataType]) -> Stream:
        reserved = [name for name in schema if name in _RESERVED]
        if reserved:
            msg = f"{label}: {', '.join(reserved)} is a name of the engine's own; choose another"
            raise FlowError(msg)
        lost = [key for key in self.keys if key not in schema]
        if lost:
            msg = f"{label}: drops the key {', '.join(lost)}; keep it, or call key_by() afterwards"
            raise FlowError(msg)
        time = self.node.time
        if time is not None and not isinstance(schema.get(time.column), pl.Datetime):
            time = None
        node = self.graph.add(operation, (self.node.id,), schema, label, time)
        return replace(self, node=node)

    def _windowed(self, window: WindowSpec) -> Stream:
        if self.node.time is None:
            msg = f"windows need event time: {find_lost_time(self.graph.nodes, self.node)}"
            raise FlowError(msg)
        self._needs_keys("window")
        check_key_names("window", self.keys, window)
        return replace(self, windowing=window, counting=None)

    def _time_column(self) -> str | None:
        # The engine lays every stream's event time into one column of microseconds before a kernel sees it.
        return TIME if self.node.time is not None else None

    def _clock(self) -> Clock:
        return self.node.time.clock if self.node.time is not None else FLOW_CLOCK

    def _needs_keys(self, where: str) -> None:
        if not self.keys:
            msg = f"{where} works per key: call .key_by(column) before; there are {', '.join(self.node.schema)}"
            raise FlowError(msg)

    def _refuse_ttl_of_windows(self, where: str, ttl: Duration | None) -> None:
        if ttl is not None and (self.windowing is not None or self.counting is not None):
            msg = f"{where}: windows end by themselves; a ttl is for running aggregates, without window()"
            raise FlowError(msg)


def _check_stream(where: str, found: object) -> None:
    if not isinstance(found, Stream):
        msg = f"{where} takes streams of the same flow, found {describe_given(found)}; give flow.read(…)"
        raise FlowError(msg)


def _optional(duration: Duration | None) -> int | None:
    return None if duration is None else parse_duration(duration, "ttl")
