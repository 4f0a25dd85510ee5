"""Epochs: each driver takes the next number, and one that finds a higher number stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from anabranch.errors import CheckpointError, Fenced
from anabranch.state.store import AlreadyExists, Store, prove_creation

EPOCHS = "epochs"
HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS = 30.0
"""A driver on another host that was silent for so long counts as gone."""

ProcessState = Literal["runs", "is stopped", "is gone"]

_EPOCH_FILE = re.compile(rf"{EPOCHS}/(\d+)\.json")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a driver, described so that another one can see whether it still lives."""

    host: str
    machine: str
    """Tells apart hosts, containers and reboots that share a name: process ids mean something only within one."""
    pid: int
    process_started: float

    @classmethod
    def this_process(cls) -> Owner:
        """Describe the calling process."""
        return cls(socket.gethostname(), _machine(), os.getpid(), psutil.Process().create_time())


@dataclass(frozen=True, slots=True)
class Holder:
    """The driver of an epoch that was not given back, as far as its life can be seen from here."""

    epoch: int
    owner: Owner
    state: ProcessState
    sign: str
    """How the state was told, for messages."""


@dataclass(slots=True)
class Lease:
    """A driver's hold on a checkpoint. The epoch fences; the heartbeat only spares a second driver the fight."""

    store: Store
    epoch: int
    owner: Owner
    now: Callable[[], float]
    _last_beat: float = field(default=float("-inf"), init=False)

    def check(self) -> None:
        """Raise ``Fenced`` if a newer driver has taken over."""
        check_epoch(self.store, self.epoch)

    def beat(self) -> None:
        """Tell drivers on other hosts that this one lives; writes at most every few seconds, so call it often."""
        moment = self.now()
        if moment - self._last_beat >= HEARTBEAT_SECONDS:
            self.store.write(_heartbeat_file(self.epoch), json.dumps({"at": moment}).encode())
            self._last_beat = moment

    def release(self) -> None:
        """Let the next driver in at once; an epoch that was taken over already is no error."""
        with contextlib.suppress(AlreadyExists):
            self.store.create(_released_file(self.epoch), b"{}")


def take_epoch(
    store: Store, owner: Owner, now: Callable[[], float], takeover: bool = False, over_stopped: bool = True
) -> Lease:
    """Take the next epoch; raise ``Fenced`` while another driver is alive, unless ``takeover``.

    A driver on this host is alive if its process runs; one that a signal stopped is fenced off, unless not
    ``over_stopped``. A driver on another host is alive if its last heartbeat is less than 30 s old by both clocks.
    A store on which two drivers could take the same epoch raises ``CheckpointError``.
    """
    prove_creation(store)
    # The random mark tells our own file from another driver's when a store answers a retried request.
    content = json.dumps(asdict(owner) | {"taken_at": now(), "mark": secrets.token_hex(8)}).encode()
    while True:
        newest = newest_epoch(store)
        if newest is not None and not takeover:
            _refuse_if_alive(store, newest, owner, now(), over_stopped)
        epoch = 1 if newest is None else newest + 1
        try:
            store.create(_epoch_file(epoch), content)
        except AlreadyExists:
            if store.read(_epoch_file(epoch)) != content:
                # Another driver was faster; look at it before trying again.
                continue
        lease = Lease(store, epoch, owner, now)
        lease.beat()
        return lease


def newest_epoch(store: Store) -> int | None:
    """Return the highest epoch ever taken, or None."""
    numbers = [int(match[1]) for entry in store.list(EPOCHS) if (match := _EPOCH_FILE.fullmatch(entry.name))]
    return max(numbers, default=None)


def was_released(store: Store, epoch: int) -> bool:
    """Say whether the driver of an epoch gave it back; one that was killed or fenced off did not."""
    return store.exists(_released_file(epoch))


def check_epoch(store: Store, epoch: int) -> None:
    """Raise ``Fenced`` if there is a newer epoch. Epochs have no gaps and are never deleted, so one look suffices."""
    if store.exists(_epoch_file(epoch + 1)):
        msg = (
            f"this driver has epoch {epoch} of {store.url}, and a newer driver has taken the next one; "
            "it stops without a commit: nothing is lost, the newer driver goes on"
        )
        raise Fenced(msg)


def refuse_if_in_use(store: Store, observer: Owner, moment: float) -> None:
    """Raise ``Fenced`` if another driver is alive, as ``take_epoch`` would; changes nothing."""
    newest = newest_epoch(store)
    if newest is not None:
        _refuse_if_alive(store, newest, observer, moment, over_stopped=True)


def find_holder(store: Store, observer: Owner, moment: float) -> Holder | None:
    """Return the driver that has the newest epoch and has not given it back, or None; it may be dead all the same."""
    epoch = newest_epoch(store)
    return None if epoch is None else _read_holder(store, epoch, observer, moment)


def _read_holder(store: Store, epoch: int, observer: Owner, moment: float) -> Holder | None:
    if store.exists(_released_file(epoch)):
        return None
    owner = _read_owner(store, epoch)
    if owner.machine == observer.machine:
        state = _process_state(owner)
        return Holder(epoch, owner, state, f"its process {state}")
    silence = moment - _read_heartbeat(store, epoch)
    sign = f"its last heartbeat is {silence:.0f} s old"
    return Holder(epoch, owner, "runs" if silence < SILENCE_SECONDS else "is gone", sign)


def _refuse_if_alive(store: Store, epoch: int, owner: Owner, moment: float, over_stopped: bool) -> None:
    holder = _read_holder(store, epoch, owner, moment)
    if holder is None:
        return
    if holder.state == "runs" or (holder.state == "is stopped" and not over_stopped):
        msg = (
            f"{store.url} is in use by a driver on {holder.owner.host}, process {holder.owner.pid} (epoch {epoch}): "
            f"{holder.sign}; stop that driver first, or start with takeover=True (--takeover) to fence it off"
        )
        raise Fenced(msg)


def _process_state(owner: Owner) -> ProcessState:
    try:
        process = psutil.Process(owner.pid)
        # A pid may be used again: only the start time makes it the same process.
        if abs(process.create_time() - owner.process_started) > 1.0:
            return "is gone"
        status = process.status()
    except psutil.NoSuchProcess:
        return "is gone"
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return "is gone"
    return "is stopped" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "runs"


def _read_owner(store: Store, epoch: int) -> Owner:
    file = _epoch_file(epoch)
    try:
        data: dict[str, Any] = json.loads(store.read(file))
        return Owner(data["host"], data["machine"], data["pid"], data["process_started"])
    except (ValueError, KeyError) as error:
        advice = "start with takeover=True (--takeover) if no other driver is at work"
        msg = f"{store.url}/{file} cannot be read ({error}); {advice}"
        raise CheckpointError(msg) from error


def _read_heartbeat(store: Store, epoch: int) -> float:
    try:
        return float(json.loads(store.read(_heartbeat_file(epoch)))["at"])
    except FileNotFoundError:
        # It died, or was paused, between taking the epoch and its first heartbeat.
        return float(json.loads(store.read(_epoch_file(epoch)))["taken_at"])


def _machine() -> str:
    parts = [socket.gethostname()]
    for source in (Path("/proc/sys/kernel/random/boot_id"), Path("/etc/machine-id")):
        with contextlib.suppress(OSError):
            parts.append(source.read_text().strip())
            break
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _epoch_file(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:08d}.json"


def _heartbeat_file(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:08d}.heartbeat"


def _released_file(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:08d}.released"
