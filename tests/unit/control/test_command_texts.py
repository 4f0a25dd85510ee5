from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.control.command_texts import (
    MOST_BYTES,
    MalformedCommand,
    read_command,
    read_reply,
    write_command,
    write_reply,
)
from anabranch.control.commands import ACTIONS, Command, Reply
from anabranch.errors import ControlError

GOOD: dict[str, dict[str, Any]] = {
    "show": {},
    "set": {"tolerance": 0.1, "protocol": "window"},
    "move": {"key": "sensor-17", "slot": 3},
    "split": {"key": "sensor-17", "slots": [0, 3]},
    "merge": {"key": "é, 1"},
    "slots": {"count": 12},
    "strategy": {"name": "least-count"},
    "home": {"slot": 3, "place": "host-2"},
}


def text_of(**changes: Any) -> bytes:
    given = {"format": 1, "id": "a1", "action": "move", "operator": None, "arguments": GOOD["move"], **changes}
    return json.dumps(given).encode()


def reason_of(text: bytes) -> str:
    with pytest.raises(MalformedCommand) as caught:
        read_command(text)
    return str(caught.value)


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_survives_the_way_as_text(action: Any) -> None:
    command = Command("c0ffee", action, "per-sensor", GOOD[action])
    assert read_command(write_command(command, epoch=3)) == command


def test_replies_survive_the_way_as_text() -> None:
    reply = Reply("c0ffee", True, "takes effect after batch 7", {"loads": [1, 2.5], "pending": None})
    assert read_reply(write_reply(reply)) == reply


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"move sensor-17 3", "cannot be read as JSON"),
        (b"\xff\xfe", "cannot be read as JSON"),
        (b"[" * 50_000, "cannot be read as JSON"),
        (b"[1]", "should be a JSON object"),
        (b"x" * (MOST_BYTES + 1), "at most 65,536"),
        (text_of(id="../epochs/1"), "ids are up to 64 letters and digits"),
        (text_of(id=7), "its id is 7"),
        (text_of(format=2), "this version reads format 1"),
        (text_of(action="drop"), "there is no action 'drop'; there are show, set, move"),
        (text_of(action=["show"]), "there is no action"),
        (text_of(operator=3), "operator must be a text or null"),
        (text_of(arguments=[1]), "arguments an object"),
        (text_of(arguments={"key": "a"}), "move takes key, slot, and was given key"),
        (text_of(arguments={"key": 17, "slot": 3}), "key must be a text, got 17"),
        (text_of(arguments={"key": "a", "slot": "3"}), "slot must be a whole number, got '3'"),
        (text_of(arguments={"key": "a", "slot": True}), "slot must be a whole number, got True"),
        (text_of(action="show"), "show takes nothing"),
        (text_of(action="set", arguments={}), "set needs a setting"),
        (text_of(action="split", arguments={"key": "a", "slots": []}), "slots must be a list of slot numbers"),
        (text_of(action="split", arguments={"key": "a", "slots": [0, "1"]}), "slots must be a list of slot numbers"),
    ],
)
def test_what_is_no_command_is_refused_with_the_reason(text: bytes, words: str) -> None:
    assert words in reason_of(text)


def test_a_malformed_command_says_whom_to_answer_where_that_can_be_told() -> None:
    with pytest.raises(MalformedCommand) as caught:
        read_command(text_of(action="drop"))
    assert caught.value.id == "a1"
    with pytest.raises(MalformedCommand) as caught:
        read_command(b"drop")
    assert caught.value.id is None


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"format": 9}', b'{"format":1,"id":"a","ok":"yes","text":"","data":{}}']
)
def test_an_answer_of_another_version_is_an_error_that_says_so(text: bytes) -> None:
    with pytest.raises(ControlError, match="use the version of anabranch that the flow runs with"):
        read_reply(text)
