"""Commands as files in the checkpoint: what is stale, malformed, or not for this driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors.control_channels import checkpoint_files
from anabranch.connectors.control_channels.checkpoint_files import INBOX, OUTBOX, FileChannel, send
from anabranch.control.command_texts import read_reply, write_command
from anabranch.control.commands import Command, Reply
from anabranch.errors import ControlError
from anabranch.state import Owner, Store, open_store, take_epoch
from anabranch.state.epochs import Lease

NOW = 1_760_000_000.0


class Clock:
    """A clock that a test moves."""

    def __init__(self, seconds: float = NOW) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "state")


def put(store: Store, command: Command, sent_at: float, epoch: int = 1) -> str:
    """Leave a command as its sender would have at that time."""
    name = f"{INBOX}/{int(sent_at * 1000):013d}-{command.id}.json"
    put_file(store, name, write_command(command, epoch=epoch), sent_at)
    return name


def put_file(store: Store, name: str, content: bytes, written_at: float) -> None:
    store.create(name, content)
    path = store.local_path(name)
    assert path is not None
    os.utime(path, (written_at, written_at))


def names(store: Store, folder: str) -> list[str]:
    return [entry.name.removeprefix(f"{folder}/") for entry in store.list(folder)]


def ids(commands: list[Command]) -> list[str]:
    return [command.id for command in commands]


def show(id: str) -> Command:
    return Command(id, "show")


def test_commands_come_in_the_order_in_which_they_were_sent(store: Store) -> None:
    for id, sent_at in (("c", NOW + 3), ("a", NOW + 1), ("b", NOW + 2)):
        put(store, show(id), sent_at)
    assert ids(FileChannel(store, 1, NOW, Clock(NOW + 4)).poll()) == ["a", "b", "c"]
    assert names(store, INBOX) == []


@pytest.mark.parametrize(
    ("sent_at", "started_at", "looked_at", "taken"),
    [
        (NOW + 1, NOW, NOW + 2, True),  # newer than the start
        (NOW + 1, NOW, NOW + 500, True),  # newer than the start, however old
        (NOW - 50, NOW, NOW + 5, True),  # less than a minute old: sent while the flow was being restarted
        (NOW - 50, NOW, NOW + 15, False),  # for the flow before
    ],
)
def test_a_flow_takes_what_is_newer_than_its_start_or_than_a_minute(
    store: Store, sent_at: float, started_at: float, looked_at: float, taken: bool
) -> None:
    put(store, show("a"), sent_at)
    assert ids(FileChannel(store, 1, started_at, Clock(looked_at)).poll()) == (["a"] if taken else [])
    assert names(store, INBOX) == []
    assert names(store, OUTBOX) == []


def test_a_sender_whose_clock_is_behind_is_heard_by_the_stores_clock(store: Store) -> None:
    command = show("a")
    put_file(store, f"{INBOX}/{int((NOW - 900) * 1000):013d}-a.json", write_command(command, epoch=1), NOW + 1)
    assert FileChannel(store, 1, NOW, Clock(NOW + 2)).poll() == [command]


@pytest.mark.parametrize(
    ("file", "content", "whom", "words"),
    [
        ("1760000001000-a.json", b"move sensor-17 3", "a", "cannot be read as JSON"),
        ("1760000001000-a.json", b'{"format":1,"id":"b","action":"show","epoch":1}', "b", "its file is called"),
        ("1760000001000-a.json", b'{"format":1,"id":"a","action":"show"}', "a", "which epoch"),
        ("1760000001000-a.json", b'{"format":1,"id":"a","action":"drop","epoch":1}', "a", "no action 'drop'"),
        ("wish.json", b'{"format":1,"id":"wish","action":"show","epoch":1}', "wish", "its file is called wish.json"),
        ("wish.txt", b"x" * 70_000, "wish", "at most 65,536"),
    ],
)
def test_a_file_that_is_no_command_is_refused_with_the_reason_and_removed(
    store: Store, file: str, content: bytes, whom: str, words: str
) -> None:
    put_file(store, f"{INBOX}/{file}", content, NOW + 1)
    put(store, show("good"), NOW + 2)
    assert ids(FileChannel(store, 1, NOW, Clock(NOW + 3)).poll()) == ["good"]
    assert names(store, INBOX) == []
    reply = read_reply(store.read(f"{OUTBOX}/{whom}.json"))
    assert not reply.ok and words in reply.text


def test_a_file_whose_name_could_lead_elsewhere_is_removed_without_an_answer(store: Store) -> None:
    put_file(store, f"{INBOX}/1760000001000-a b.json", b"?", NOW + 1)
    assert FileChannel(store, 1, NOW, Clock(NOW + 3)).poll() == []
    assert (names(store, INBOX), names(store, OUTBOX)) == ([], [])


def test_an_older_driver_leaves_alone_what_was_sent_to_the_newer(store: Store) -> None:
    put(store, show("a"), NOW + 1, epoch=2)
    assert FileChannel(store, 1, NOW, Clock(NOW + 2)).poll() == []
    assert ids(FileChannel(store, 2, NOW, Clock(NOW + 2)).poll()) == ["a"]


def test_a_newer_driver_takes_what_was_sent_to_the_older_a_moment_ago(store: Store) -> None:
    put(store, show("a"), NOW - 2, epoch=1)
    assert ids(FileChannel(store, 2, NOW, Clock(NOW + 1)).poll()) == ["a"]


def test_answers_that_nobody_came_for_are_swept(store: Store) -> None:
    clock = Clock(time.time())
    channel = FileChannel(store, 1, clock(), clock)
    channel.reply(Reply("a", True, "yes"))
    channel.poll()
    clock.seconds += 50
    channel.poll()
    assert names(store, OUTBOX) == ["a.json"]
    clock.seconds += 50
    channel.poll()
    assert names(store, OUTBOX) == []


def test_what_a_killed_sender_left_half_written_is_swept(store: Store) -> None:
    put_file(store, f"{INBOX}/.tmp-cafe", b"{", NOW)
    FileChannel(store, 1, NOW, Clock(NOW + 3500)).poll()
    assert len(store.abandoned("control")) == 1
    FileChannel(store, 1, NOW, Clock(NOW + 3700)).poll()
    assert store.abandoned("control") == []


class StubbornStore:
    """A store that cannot delete for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.stubborn = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def delete(self, doomed: Any) -> None:
        if self.stubborn and doomed:
            msg = "out of reach"
            raise OSError(msg)
        self._store.delete(doomed)


def test_a_command_whose_file_cannot_be_removed_yet_is_done_once(store: Store) -> None:
    stubborn: Any = StubbornStore(store)
    put(store, show("a"), NOW + 1)
    put(store, show("b"), NOW + 2)
    channel = FileChannel(stubborn, 1, NOW, Clock(NOW + 3))
    assert ids(channel.poll()) == ["a", "b"]
    with pytest.raises(OSError, match="out of reach"):
        channel.poll()
    stubborn.stubborn = False
    assert channel.poll() == []
    assert names(store, INBOX) == []


def test_an_object_store_is_looked_into_every_two_seconds(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path}")
    clock = Clock(time.time())
    channel = FileChannel(store, 1, clock() - 10, clock)
    channel.poll()
    store.create(f"{INBOX}/{int(clock() * 1000):013d}-a.json", write_command(show("a"), epoch=1))
    clock.seconds += 1
    assert channel.poll() == []
    clock.seconds += 1.5
    assert ids(channel.poll()) == ["a"]


# -- the sender


def lease_of(store: Store, owner: Owner | None = None, at: float | None = None) -> Lease:
    return take_epoch(store, owner or Owner.this_process(), time.time if at is None else lambda: at)


def test_a_checkpoint_on_which_nothing_ever_ran_is_an_error(store: Store) -> None:
    with pytest.raises(ControlError, match="no flow runs on"):
        send(store, show("a"), 5)
    assert names(store, INBOX) == []


def test_a_flow_that_ended_is_an_error(store: Store) -> None:
    lease_of(store).release()
    with pytest.raises(ControlError, match="no flow runs on"):
        send(store, show("a"), 5)


def test_a_flow_whose_process_is_gone_is_an_error_that_names_it(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = Owner.this_process()
    lease_of(store, Owner(here.host, here.machine, ended.pid, 1.0))
    with pytest.raises(ControlError, match=rf"the last one was the driver on .*, process {ended.pid}, .* is gone"):
        send(store, show("a"), 5)


def test_a_flow_on_another_host_is_asked_while_its_heart_beats(store: Store) -> None:
    lease_of(store, Owner("elsewhere", "elsewhere", 1, 1.0), at=NOW)
    with pytest.raises(ControlError, match="its last heartbeat is 40 s old"):
        send(store, show("a"), 5, Clock(NOW + 40))
    with pytest.raises(ControlError, match=r"no answer within 0\.1 s from the driver on elsewhere, process 1"):
        send(store, show("a"), 0.1, Clock(NOW + 20))


def test_a_command_that_was_not_taken_is_taken_back(store: Store) -> None:
    lease_of(store)
    with pytest.raises(ControlError, match="nothing was done"):
        send(store, show("a"), 0.2)
    assert names(store, INBOX) == []


def test_a_command_that_was_taken_and_not_answered_may_still_be_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = FileChannel(store, lease_of(store).epoch, time.time())
    taken: list[Command] = []
    # The flow takes it while the sender waits.
    monkeypatch.setattr(checkpoint_files.time, "sleep", lambda _: taken.extend(channel.poll()))
    with pytest.raises(ControlError, match="it may still be done"):
        send(store, show("a"), 0.2)
    assert ids(taken) == ["a"]


def test_a_command_carries_the_epoch_of_the_driver_that_was_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lease_of(store).release()
    lease = lease_of(store)
    sent: list[bytes] = []
    monkeypatch.setattr(
        checkpoint_files.time, "sleep", lambda _: sent.extend(store.read(entry.name) for entry in store.list(INBOX))
    )
    with pytest.raises(ControlError, match="taken back"):
        send(store, show("a"), 0.2)
    assert json.loads(sent[0])["epoch"] == lease.epoch == 2
