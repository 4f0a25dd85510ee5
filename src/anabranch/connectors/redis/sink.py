"""Results as hashes in Redis: one a row, its fields the columns, all of a batch and its number in one MULTI."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import polars as pl

from anabranch.connectors.addresses import show_address
from anabranch.connectors.commit_markers import (
    Mark,
    OnLoss,
    Place,
    Publication,
    check_on_loss,
    claim,
    is_due,
    next_mark,
)
from anabranch.connectors.databases.addresses import fill_in, read_address
from anabranch.connectors.databases.staged_rows import SUFFIX, StagedByTasks, last_of_each_key
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.redis.key_templates import KeyPattern, TimeForm, as_text, check_time_form
from anabranch.connectors.redis.servers import EXAMPLE, SCHEMES, advise, connect_redis, import_redis, is_away
from anabranch.connectors.retry import DEFAULT_PATIENCE_SECONDS, ServerAway, at_start, insist
from anabranch.errors import SinkError
from anabranch.model import StagedFile

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 120.0
_KEY = "__anabranch_key"
_COMMANDS = "HSET, HDEL, DEL, EXPIRE, TYPE, GET, SET, WATCH, MULTI and EXEC"
_KEYS_AT_ONCE = 5_000
_REPAIR = "delete it, or choose another pattern, and start again"
T = TypeVar("T")


@dataclass(slots=True)
class _Session:
    """What the driver holds of a sink: its connection, and what it has seen."""

    client: Any = None
    store: str | None = None
    undone: tuple[Mark, Mark | None] | None = None
    """A mark that stands though its batch was not written whole, and the one before it."""


@dataclass(frozen=True, slots=True)
class RedisHashSink(StagedByTasks):
    """A hash a row; made by ``redis_hashes``."""

    url: str = field(repr=False)
    key: KeyPattern
    times: TimeForm
    expire_seconds: int | None
    index: tuple[KeyPattern, KeyPattern] | None
    written_at: str | None
    on_loss: OnLoss
    patience_seconds: float
    suffix: str = SUFFIX
    _session: _Session = field(default_factory=_Session, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name the server and the pattern of the keys."""
        return f"redis {show_address(self.url)} {self.key.text}"

    @property
    def place(self) -> str:
        """Name the server and the pattern of the keys."""
        return f"{show_address(self.url)} {self.key.text}"

    @property
    def mark_key(self) -> str:
        """The key under which the mark lies."""
        return f"anabranch:commits:{self.key.text}"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if a pattern names a column that is not there; asks no server."""
        for pattern in (self.key, *(self.index or ())):
            pattern.check(schema)
        if self.written_at is not None and self.written_at in schema:
            msg = (
                f"written_at of {self.label} is {self.written_at!r}, which the results have already; name another field"
            )
            raise SinkError(msg)
        for column, kind in schema.items():
            as_text(column, kind, self.times)

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the keys for this flow; a store that lost its mark is noticed."""
        insist(self.place, at_start(self.patience_seconds), lambda: self._ask(self._claim, flow, last_batch))

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Write the batch's hashes and its number at once; a batch that is there already is left alone."""
        place, given = Place(self.place, str(context["flow"]), self.on_loss), Publication.of(batch, context)
        insist(self.place, self.patience_seconds, lambda: self._ask(self._publish, place, given, staged))

    def retract(self, after_batch: int) -> None:
        """Set the mark back, and raise ``SinkError``: hashes stay until they are overwritten."""
        insist(self.place, at_start(self.patience_seconds), lambda: self._ask(self._set_back, after_batch))
        msg = f"hashes of batches after {after_batch} stay until they are overwritten; delete those that will not be"
        raise SinkError(msg)

    def close(self) -> None:
        """Give the connection back."""
        if self._session.client is not None:
            self._session.client.close()
            self._session.client = None

    # -- inside ----------------------------------------------------------------------------------------------------

    def _ask(self, act: Callable[..., T], *arguments: Any) -> T:
        redis = import_redis(SinkError)
        url = fill_in(self.url)
        address = read_address(url, SCHEMES, EXAMPLE)
        try:
            if self._session.client is None:
                self._session.client = _connect(url)
            return act(self._session.client, *arguments)
        except (redis.RedisError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            self.close()
            reason = address.scrub(error)
            if is_away(error):
                raise ServerAway(reason) from None
            msg = f"{self.place} refuses it: {reason}; {advise(error, _COMMANDS)}"
            raise SinkError(msg) from None

    def _claim(self, client: Any, flow: str, last_batch: int | None) -> None:
        with client.pipeline(transaction=True) as pipe:
            mark = self._watch_mark(pipe)
            wanted = claim(mark, Place(self.place, flow, self.on_loss), last_batch, absence_is_loss=True)
            if wanted is not None:
                pipe.multi()
                pipe.set(self.mark_key, _write(wanted))
                pipe.execute()
        held = wanted or mark
        self._session.store = held.store if held else None

    def _publish(self, client: Any, place: Place, given: Publication, staged: Sequence[tuple[StagedFile, str]]) -> None:
        with client.pipeline(transaction=True) as pipe:
            mark = self._watch_mark(pipe)
            if self._session.undone is not None and mark == self._session.undone[0]:
                mark = self._session.undone[1]
            if not is_due(mark, place, given, self._session.store):
                return
            wanted = next_mark(mark, place, given)
            frame = read_staged(staged)
            commands = [] if frame is None else list(self._commands(frame))
            self._check_keys(client, list(dict.fromkeys(key for _, key, *_ in commands)))
            pipe.multi()
            for command in commands:
                pipe.execute_command(*command)
            pipe.set(self.mark_key, _write(wanted))
            answers = pipe.execute(raise_on_error=False)
        asked = zip(commands, answers, strict=False)
        refused = [(command[1], answer) for command, answer in asked if isinstance(answer, Exception)]
        if refused:
            self._session.undone = (wanted, mark)
            self._undo(client)
            key, reason = refused[0]
            msg = f"{self.place}: the key {key!r} changed while the batch was written ({reason}); {_REPAIR}"
            raise SinkError(msg)
        self._session.store, self._session.undone = wanted.store, None

    def _undo(self, client: Any) -> None:
        """Take back the mark of a batch that was not written whole."""
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(self.mark_key)
            held = pipe.get(self.mark_key)
            if self._session.undone is None or held != _write(self._session.undone[0]):
                return
            before = self._session.undone[1]
            pipe.multi()
            if before is None:
                pipe.delete(self.mark_key)
            else:
                pipe.set(self.mark_key, _write(before))
            pipe.execute()
        self._session.undone = None

    def _check_keys(self, client: Any, keys: list[str]) -> None:
        """Raise ``SinkError`` if a key holds something else than a hash.

        Redis does what it can of a MULTI: a command that fails in it does not undo the others, nor the mark. To watch
        the keys, too, would take the server as long as the square of their number.
        """
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            with client.pipeline(transaction=False) as asked:
                for key in some:
                    asked.type(key)
                kinds = asked.execute()
            for key, kind in zip(some, kinds, strict=True):
                if kind not in ("hash", "none"):
                    msg = f"{self.place}: the key {key!r} holds a {kind}, not a hash, so nothing is written; {_REPAIR}"
                    raise SinkError(msg)

    def _set_back(self, client: Any, after_batch: int) -> None:
        with client.pipeline(transaction=True) as pipe:
            mark = self._watch_mark(pipe)
            if mark is not None and mark.batch > after_batch:
                pipe.multi()
                pipe.set(self.mark_key, _write(Mark(mark.flow, after_batch, mark.epoch, mark.store)))
                pipe.execute()

    def _watch_mark(self, pipe: Any) -> Mark | None:
        """Return the mark; if another driver changes it before this one writes, nothing is written."""
        pipe.watch(self.mark_key)
        held = pipe.get(self.mark_key)
        if held is None:
            return None
        try:
            return Mark(**json.loads(held))
        except (ValueError, TypeError):
            msg = f"the key {self.mark_key!r} of {show_address(self.url)} holds something else than a mark; delete it"
            raise SinkError(msg) from None

    def _commands(self, frame: pl.DataFrame) -> Iterator[list[str]]:
        """Yield what writes the rows: fields that became null are deleted."""
        frame = last_of_each_key(frame.with_columns(self.key.fill(frame.schema, self.times).alias(_KEY)), [_KEY])
        fields = [column for column in frame.columns if column != _KEY]
        texts = frame.select(as_text(column, frame.schema[column], self.times) for column in fields)
        extra = [] if self.written_at is None else [self.written_at, str(int(time.time() * 1000))]
        for key, row in zip(frame.get_column(_KEY), texts.iter_rows(), strict=True):
            held = [part for pair in zip(fields, row, strict=True) if pair[1] is not None for part in pair]
            if held or extra:
                yield ["HSET", key, *held, *extra]
            empty = [name for name, text in zip(fields, row, strict=True) if text is None]
            if empty:
                yield ["HDEL", key, *empty]
            if self.expire_seconds is not None:
                yield ["EXPIRE", key, str(self.expire_seconds)]
        if self.index is not None:
            home, name = (pattern.fill(frame.schema, self.times) for pattern in self.index)
            for row in frame.select(home.alias("home"), name.alias("name"), _KEY).iter_rows():
                yield ["HSET", *row]


def redis_hashes(
    url: str,
    key: str,
    *,
    times: TimeForm = "iso",
    expire_seconds: int | None = None,
    index: tuple[str, str] | None = None,
    written_at: str | None = None,
    on_loss: OnLoss = "stop",
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> RedisHashSink:
    """Write each result row as a Redis hash under a key such as ``campaign:{campaign}:{window_start}``.

    A later row of a key replaces the fields of the earlier one. A batch is one MULTI together with its number, so the
    server must be a single one, not a cluster. ``{column:ms}`` in a key gives a time in milliseconds.

    Examples:
        >>> ab.redis_hashes("redis://cache:6379/0", "lowest:{sensor}:{window_start:ms}", expire_seconds=86_400).label
        'redis redis://cache:6379/0 lowest:{sensor}:{window_start:ms}'
    """
    import_redis(SinkError)
    read_address(url, SCHEMES, EXAMPLE)
    if expire_seconds is not None and expire_seconds <= 0:
        msg = f"expire_seconds is a whole number above 0, found {expire_seconds}; leave it out to keep results"
        raise SinkError(msg)
    patterns = None if index is None else (KeyPattern.read(index[0]), KeyPattern.read(index[1]))
    return RedisHashSink(
        url,
        KeyPattern.read(key),
        check_time_form(times),
        expire_seconds,
        patterns,
        written_at,
        check_on_loss(on_loss),
        patience_seconds,
    )


def _connect(url: str) -> Any:
    return connect_redis(url, SinkError, answer_seconds=ANSWER_SECONDS, connect_seconds=CONNECT_SECONDS, decode=True)


def _write(mark: Mark) -> str:
    return json.dumps(asdict(mark))
