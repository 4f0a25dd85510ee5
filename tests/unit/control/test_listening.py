"""The thread between a channel and the steering: whatever goes wrong, the flow goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.control.commands import Command, Reply
from anabranch.control.listening import CommandListener

WAIT_SECONDS = 120.0


class FakeChannel:
    """Hands out what a test put in, and keeps the replies."""

    def __init__(self) -> None:
        self.waiting: list[Command | Exception] = []
        self.replies: list[Reply] = []
        self.unsendable: set[str] = set()
        self.answered = threading.Event()
        self.closed = False

    def poll(self) -> list[Command]:
        given, self.waiting = self.waiting, []
        for item in given:
            if isinstance(item, Exception):
                raise item
        return given  # type: ignore[return-value]

    def reply(self, reply: Reply) -> None:
        if reply.id in self.unsendable:
            msg = "out of reach"
            raise OSError(msg)
        self.replies.append(reply)
        self.answered.set()

    def close(self) -> None:
        self.closed = True


class FakeSteering:
    """Accepts everything but what it was told to refuse or to fail at."""

    def __init__(self) -> None:
        self.seen: list[Command] = []

    def submit(self, command: Command) -> Reply:
        self.seen.append(command)
        if command.arguments.get("name") == "broken":
            msg = "no such thing"
            raise KeyError(msg)
        return Reply(command.id, ok=command.arguments.get("name") != "refused", text="heard")


class Heard:
    """A channel, a steering and a listener between them."""

    def __init__(self) -> None:
        self.channel, self.steering = FakeChannel(), FakeSteering()
        self.changes = 0
        self.listener = CommandListener(self.channel, self.steering, self._count)

    def _count(self) -> None:
        self.changes += 1

    def send(self, *commands: Any) -> None:
        self.channel.answered.clear()
        self.channel.waiting = list(commands)


def strategy(id: str, name: str = "hash") -> Command:
    return Command(id, "strategy", None, {"name": name})


def await_event(event: threading.Event) -> None:
    assert event.wait(WAIT_SECONDS)


def await_that(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("waited in vain")


@pytest.fixture
def heard() -> Any:
    heard = Heard()
    heard.listener.start()
    yield heard
    heard.listener.stop()


def test_commands_are_answered_in_their_order(heard: Heard) -> None:
    heard.send(*(strategy(str(number)) for number in range(20)))
    await_that(lambda: len(heard.channel.replies) == 20)
    assert [reply.id for reply in heard.channel.replies] == [str(number) for number in range(20)]


def test_a_boundary_is_wanted_for_what_was_accepted_only(heard: Heard) -> None:
    heard.send(
        Command("1", "show"), strategy("2", "refused"), Command("3", "set", None, {"tolerance": 0.1}), strategy("4")
    )
    await_that(lambda: len(heard.channel.replies) == 4)
    assert heard.changes == 1


def test_a_command_that_breaks_the_steering_is_refused_and_the_next_is_heard(heard: Heard) -> None:
    heard.send(strategy("1", "broken"), strategy("2"))
    await_that(lambda: len(heard.channel.replies) == 2)
    first, second = heard.channel.replies
    assert (first.ok, second.ok) == (False, True)
    assert "strategy failed: KeyError" in first.text


def test_a_channel_that_fails_is_warned_of_once_and_tried_again(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "anabranch"):
        for _ in range(3):
            heard.channel.waiting = [OSError("gone")]
            await_that(lambda: not heard.channel.waiting)
        heard.send(strategy("1"))
        await_event(heard.channel.answered)
    assert [record.message for record in caplog.records] == [
        "commands cannot be read (gone); the flow goes on and tries again"
    ]


def test_an_answer_that_cannot_be_sent_does_not_end_the_listening(heard: Heard) -> None:
    heard.channel.unsendable = {"1"}
    heard.send(strategy("1"), strategy("2"))
    await_event(heard.channel.answered)
    assert [reply.id for reply in heard.channel.replies] == ["2"]


def test_what_comes_at_the_end_is_refused_and_the_channel_closed() -> None:
    heard = Heard()
    heard.channel.waiting = [strategy("late")]
    heard.listener._ending.set()
    heard.listener.start()
    heard.listener.stop()
    (reply,) = heard.channel.replies
    assert not reply.ok and "the flow has ended" in reply.text
    assert heard.steering.seen == []
    assert heard.channel.closed
