"""What a flow and those who steer it rely on, whichever channel carries the commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors.control_channels import checkpoint_files
from anabranch.connectors.control_channels.checkpoint_files import FileChannel
from anabranch.control.commands import Command, CommandChannel, Reply
from anabranch.errors import ControlError
from anabranch.state import Owner, open_store, take_epoch
from servers.redis import RedisServer

WAIT_SECONDS = 120.0


@dataclass
class Line:
    """Both ends of a channel."""

    channel: CommandChannel
    send: Callable[[Command, float], Reply]

    def next_commands(self, count: int) -> list[Command]:
        """Return so many commands, as soon as they are there."""
        found: list[Command] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {found} came"
            found += self.channel.poll()
            time.sleep(0.01)
        return found


@pytest.fixture(params=["local", "memory", "redis"])
def line(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    if request.param == "redis":
        server = RedisServer()
        server.start()
        from anabranch.connectors.control_channels import redis_messages

        listening = redis_messages.RedisChannel(server.url, "low-voltage")
        listening.poll()
        yield Line(listening, lambda command, timeout: redis_messages.send(server.url, "low-voltage", command, timeout))
        listening.close()
        server.close()
        return
    monkeypatch.setattr(checkpoint_files, "REMOTE_LOOK_SECONDS", 0.05)
    store = open_store({"local": str(tmp_path / "c"), "memory": f"memory://{tmp_path}/c"}[request.param])
    lease = take_epoch(store, Owner.this_process(), time.time)
    files = FileChannel(store, lease.epoch, time.time())
    yield Line(files, lambda command, timeout: checkpoint_files.send(store, command, timeout))


class Asking(threading.Thread):
    """One who sends commands, each after the answer to the one before."""

    def __init__(self, line: Line, *commands: Command) -> None:
        super().__init__(daemon=True)
        self._line, self._commands = line, commands
        self.replies: list[Reply] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for command in self._commands:
                self.replies.append(self._line.send(command, WAIT_SECONDS))
        except Exception as error:
            self.error = error

    def done(self) -> list[Reply]:
        self.join(WAIT_SECONDS)
        assert not self.is_alive()
        assert self.error is None, self.error
        return self.replies


def move(id: str, slot: int = 3) -> Command:
    return Command(id, "move", "per-sensor", {"key": "sensor-17", "slot": slot})


def test_a_command_arrives_as_it_was_sent_and_its_answer_comes_back(line: Line) -> None:
    asking = Asking(line, move("a1"))
    (command,) = line.next_commands(1)
    assert command == move("a1")
    reply = Reply("a1", True, "after batch 7 – ça va", {"loads": [1, 2.5], "none": None})
    line.channel.reply(reply)
    assert asking.done() == [reply]


def test_each_command_comes_once(line: Line) -> None:
    asking = Asking(line, move("a1"))
    line.next_commands(1)
    assert [line.channel.poll() for _ in range(5)] == [[]] * 5
    line.channel.reply(Reply("a1", False, "no"))
    asking.done()
    assert line.channel.poll() == []


def test_several_ask_at_once_and_each_gets_the_answer_to_its_own_question(line: Line) -> None:
    asking = [Asking(line, *(move(f"{who}-{n}", n) for n in range(3))) for who in "abcd"]
    seen: list[str] = []
    while len(seen) < 12:
        for command in line.next_commands(1):
            seen.append(command.id)
            line.channel.reply(Reply(command.id, True, f"answer to {command.id}"))
    for who, one in zip("abcd", asking, strict=True):
        assert [reply.text for reply in one.done()] == [f"answer to {who}-{n}" for n in range(3)]
        assert [id for id in seen if id.startswith(who)] == [f"{who}-{n}" for n in range(3)]


def test_an_answer_that_does_not_come_is_an_error_that_says_how_long_it_was_waited_for(line: Line) -> None:
    with pytest.raises(ControlError, match=r"no answer within 0\.3 s"):
        line.send(move("a1"), 0.3)


def test_an_answer_that_nobody_waits_for_does_no_harm(line: Line) -> None:
    line.channel.reply(Reply("unknown", True, "hello?"))
    asking = Asking(line, move("a1"))
    line.next_commands(1)
    line.channel.reply(Reply("a1", True, "yes"))
    assert [reply.text for reply in asking.done()] == ["yes"]


def test_large_answers_arrive_whole(line: Line) -> None:
    data: dict[str, Any] = {"loads": list(range(20_000))}
    asking = Asking(line, Command("a1", "show"))
    line.next_commands(1)
    line.channel.reply(Reply("a1", True, "", data))
    assert asking.done()[0].data == data
