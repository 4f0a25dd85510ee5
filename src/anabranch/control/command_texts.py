"""Commands and replies as JSON texts, which is how every channel carries them; what comes in is not trusted."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from anabranch.control.commands import ACTIONS, Command, Reply
from anabranch.errors import ControlError

FORMAT = 1
MOST_BYTES = 65_536
"""A command is a line or two; what is longer is none."""

_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
"""Ids become parts of file and channel names."""

_SHAPES: dict[str, dict[str, tuple[type, str]]] = {
    "show": {},
    "move": {"key": (str, "a text"), "slot": (int, "a whole number")},
    "split": {"key": (str, "a text"), "slots": (list, "a list of slot numbers")},
    "merge": {"key": (str, "a text")},
    "slots": {"count": (int, "a whole number")},
    "strategy": {"name": (str, "a text")},
    "home": {"slot": (int, "a whole number")},
}
"""What each action but *set* is given, by name: the type, and its name for people."""
_LEFT_OUT: dict[str, dict[str, tuple[type, str]]] = {
    "strategy": {"options": (dict, "an object")},
    "home": {"place": (str, "a text")},
}
"""What an action may be given besides."""


class MalformedCommand(ControlError):
    """A text that should be a command is none; ``id`` tells whom to answer, where it can be told."""

    def __init__(self, reason: str, id: str | None = None) -> None:
        super().__init__(f"this is no command: {reason}")
        self.id = id


def is_command_id(text: object) -> TypeGuard[str]:
    """Say whether a text may be the id of a command."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def write_command(command: Command, **extra: Any) -> bytes:
    """Return the text of a command; a channel may add what is its own."""
    return _dump(
        {
            "id": command.id,
            "action": command.action,
            "operator": command.operator,
            "arguments": dict(command.arguments),
            **extra,
        }
    )


def read_command(text: bytes) -> Command:
    """Return the command that a text holds, or raise ``MalformedCommand`` with the reason."""
    if len(text) > MOST_BYTES:
        msg = f"it has {len(text):,} bytes, and commands have at most {MOST_BYTES:,}"
        raise MalformedCommand(msg)
    try:
        given = _read_object(text)
    except ValueError as error:
        raise MalformedCommand(str(error)) from error
    id = given.get("id")
    if not is_command_id(id):
        msg = f"its id is {_shorten(id)}; ids are up to 64 letters and digits"
        raise MalformedCommand(msg)
    if given.get("format") != FORMAT:
        msg = f"its format is {_shorten(given.get('format'))}, and this version reads format {FORMAT}"
        raise MalformedCommand(msg, id)
    action, operator, arguments = given.get("action"), given.get("operator"), given.get("arguments", {})
    if action not in ACTIONS:
        msg = f"there is no action {_shorten(action)}; there are {', '.join(ACTIONS)}"
        raise MalformedCommand(msg, id)
    if not (operator is None or isinstance(operator, str)) or not isinstance(arguments, dict):
        msg = "operator must be a text or null, and arguments an object"
        raise MalformedCommand(msg, id)
    problem = find_problem(action, arguments)
    if problem is not None:
        raise MalformedCommand(problem, id)
    return Command(id, action, operator, arguments)


def write_reply(reply: Reply) -> bytes:
    """Return the text of a reply."""
    return _dump({"id": reply.id, "ok": reply.ok, "text": reply.text, "data": dict(reply.data)})


def read_reply(text: bytes) -> Reply:
    """Return the reply that a text holds; raise ``ControlError`` if it is none that this version can read."""
    given: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        given = _read_object(text)
    id, ok, words, data = (given.get(name) for name in ("id", "ok", "text", "data"))
    known = given.get("format") == FORMAT and isinstance(id, str) and isinstance(words, str)
    if not known or not isinstance(ok, bool) or not isinstance(data, dict):
        msg = (
            f"the flow's answer cannot be read: {_shorten(text)}; use the version of anabranch that the flow runs with"
        )
        raise ControlError(msg)
    return Reply(str(id), ok, str(words), data)


def find_problem(action: str, arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the arguments of an action, or None; whether they make sense, the flow must say."""
    if action == "set":
        return None if arguments else "set needs a setting and its value"
    shape = _SHAPES[action] | {name: kind for name, kind in _LEFT_OUT.get(action, {}).items() if name in arguments}
    if set(arguments) != set(shape):
        wanted = ", ".join(shape) or "nothing"
        return f"{action} takes {wanted}, and was given {', '.join(map(str, arguments)) or 'nothing'}"
    for name, (kind, kind_name) in shape.items():
        value = arguments[name]
        # True is an integer to Python, and no slot to anybody.
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"{name} must be {kind_name}, got {_shorten(value)}"
    slots = arguments.get("slots", [])
    if action == "split" and (not slots or any(type(slot) is not int for slot in slots)):
        return f"slots must be a list of slot numbers, got {_shorten(slots)}"
    return None


def _read_object(text: bytes) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"it cannot be read as JSON ({error})"
        raise ValueError(msg) from error
    if not isinstance(given, dict):
        msg = f"it is {_shorten(given)}, and should be a JSON object"
        raise ValueError(msg)
    return given


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **content}, ensure_ascii=False).encode()


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
