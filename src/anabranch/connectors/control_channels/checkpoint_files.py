"""Commands as files in the flow's checkpoint: no server, and whoever can write there can send one.

A sender creates ``control/inbox/<milliseconds>-<id>.json``. The flow takes the file away, so that a command is done at
most once, and creates ``control/outbox/<id>.json``, which the sender takes away in turn.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import PurePosixPath

from anabranch.control.command_texts import (
    MOST_BYTES,
    MalformedCommand,
    is_command_id,
    read_command,
    read_reply,
    write_command,
    write_reply,
)
from anabranch.control.commands import Command, Reply
from anabranch.errors import ControlError
from anabranch.state.epochs import Holder, Owner, find_holder
from anabranch.state.store import AlreadyExists, Entry, Store

INBOX = "control/inbox"
OUTBOX = "control/outbox"
STALE_SECONDS = 60.0
SWEEP_SECONDS = 30.0
ABANDONED_SECONDS = 3600.0
REMOTE_LOOK_SECONDS = 2.0
"""A look into an object store is a request that is paid for."""

_INBOX_FILE = re.compile(rf"{INBOX}/(\d{{13,}})-([^/]+)\.json")

logger = logging.getLogger("anabranch")


class FileChannel:
    """The flow's end. Of two drivers on a checkpoint, the older leaves alone what was sent to the newer."""

    def __init__(self, store: Store, epoch: int, started_at: float, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._epoch = epoch
        self._started_at = started_at
        self._now = now
        self._look_seconds = 0.0 if _is_local(store) else REMOTE_LOOK_SECONDS
        self._next_look = float("-inf")
        self._next_sweep = float("-inf")
        self._taken: set[str] = set()

    def poll(self) -> list[Command]:
        """Return the commands that came since the last call, oldest first, each once; refuse what is none."""
        moment = self._now()
        if moment < self._next_look:
            return []
        self._next_look = moment + self._look_seconds
        if moment >= self._next_sweep:
            self._next_sweep = moment + SWEEP_SECONDS
            self._sweep(moment)
        waiting = self._store.list(INBOX)
        # A name is remembered only as long as its file could not be deleted.
        self._taken &= {entry.name for entry in waiting}
        found: list[Command] = []
        for entry in waiting:
            try:
                command = self._take(entry, moment)
            except Exception:
                # The store is out of reach for a moment; what was taken already must not be lost with it.
                if not found:
                    raise
                break
            if command is not None:
                found.append(command)
        return found

    def reply(self, reply: Reply) -> None:
        """Leave an answer for whoever asked."""
        with contextlib.suppress(AlreadyExists):
            self._store.create(_outbox_file(reply.id), write_reply(reply))

    def close(self) -> None:
        """Files need no closing."""

    def _take(self, entry: Entry, moment: float) -> Command | None:
        if entry.name in self._taken or self._is_stale(entry, moment):
            self._store.delete([entry.name])
            return None
        try:
            if entry.bytes > MOST_BYTES:
                msg = f"it has {entry.bytes:,} bytes, and commands have at most {MOST_BYTES:,}"
                raise MalformedCommand(msg)
            content = self._store.read(entry.name)
            command = _read_file(entry.name, content)
        except FileNotFoundError:
            # Its sender has taken it back.
            return None
        except MalformedCommand as error:
            self._refuse(entry.name, error)
            return None
        if _epoch_of(content) > self._epoch:
            return None
        self._taken.add(entry.name)
        # If it stays for now, its name is known.
        with contextlib.suppress(Exception):
            self._store.delete([entry.name])
        return command

    def _is_stale(self, entry: Entry, moment: float) -> bool:
        match = _INBOX_FILE.fullmatch(entry.name)
        named_at = int(match[1]) / 1000 if match is not None else 0.0
        # The sender's clock may be behind; the store's own is asked, too.
        sent_at = max(min(named_at, moment), entry.modified_seconds)
        return sent_at < self._started_at and moment - sent_at > STALE_SECONDS

    def _refuse(self, name: str, error: MalformedCommand) -> None:
        logger.warning("a file in %s/%s is refused: %s", self._store.url, name, error)
        match = _INBOX_FILE.fullmatch(name)
        whom = error.id or (match[2] if match is not None else PurePosixPath(name).stem)
        if is_command_id(whom):
            self.reply(Reply(whom, ok=False, text=str(error)))
        self._store.delete([name])

    def _sweep(self, moment: float) -> None:
        """Remove answers that nobody came for, and what writers that died left behind."""
        unread = [e.name for e in self._store.list(OUTBOX) if moment - e.modified_seconds > STALE_SECONDS]
        torn = [e.name for e in self._store.abandoned("control") if moment - e.modified_seconds > ABANDONED_SECONDS]
        self._store.delete([*unread, *torn])


def send(store: Store, command: Command, timeout_seconds: float, now: Callable[[], float] = time.time) -> Reply:
    """Send a command to the flow that runs on a checkpoint, and return its answer.

    Raises ``ControlError`` if none runs, or if no answer comes in time; a command that was not taken until then is
    taken back.
    """
    holder = _running_driver(store, now())
    name = f"{INBOX}/{int(now() * 1000):013d}-{command.id}.json"
    store.create(name, write_command(command, epoch=holder.epoch))
    pause = 0.05 if _is_local(store) else REMOTE_LOOK_SECONDS / 4
    deadline = time.monotonic() + timeout_seconds
    while (reply := _take_reply(store, command.id)) is None and time.monotonic() < deadline:
        time.sleep(pause)
    if reply is not None:
        return reply
    waited = f"no answer within {timeout_seconds:g} s from {_describe(holder)}"
    if store.exists(name):
        store.delete([name])
        _running_driver(store, now())
        msg = f"{waited}; the command was taken back, and nothing was done: try again with a longer --timeout"
    else:
        msg = f"{waited}, which has taken the command; it may still be done: `show` will tell"
    # The answer may have come while the file was looked for.
    if (reply := _take_reply(store, command.id)) is not None:
        return reply
    raise ControlError(msg)


def _running_driver(store: Store, moment: float) -> Holder:
    holder = find_holder(store, Owner.this_process(), moment)
    if holder is None:
        msg = f"no flow runs on {store.url}; start it, or give the checkpoint of one that runs"
        raise ControlError(msg)
    if holder.state != "runs":
        msg = f"no flow runs on {store.url}: the last one was {_describe(holder)}, and {holder.sign}"
        raise ControlError(msg)
    return holder


def _describe(holder: Holder) -> str:
    return f"the driver on {holder.owner.host}, process {holder.owner.pid}"


def _take_reply(store: Store, id: str) -> Reply | None:
    name = _outbox_file(id)
    try:
        content = store.read(name)
    except FileNotFoundError:
        return None
    store.delete([name])
    return read_reply(content)


def _read_file(name: str, content: bytes) -> Command:
    match = _INBOX_FILE.fullmatch(name)
    command = read_command(content)
    if match is None or match[2] != command.id:
        msg = f"its file is called {PurePosixPath(name).name}; the name is <milliseconds>-{command.id}.json"
        raise MalformedCommand(msg, command.id)
    if not isinstance(_epoch_of(content), int):
        msg = "it does not say which epoch of the flow it is for"
        raise MalformedCommand(msg, command.id)
    return command


def _epoch_of(content: bytes) -> int:
    epoch: int = json.loads(content).get("epoch")
    return epoch


def _outbox_file(id: str) -> str:
    return f"{OUTBOX}/{id}.json"


def _is_local(store: Store) -> bool:
    return store.local_path("control") is not None
