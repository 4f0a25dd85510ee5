"""The words behind an action of ``anabranch ctl``, as the arguments of a command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.cli.choices import Action

_USAGE: dict[Action, str] = {
    "show": "show",
    "set": "set NAME=VALUE ...",
    "move": "move KEY SLOT",
    "split": "split KEY SLOT,SLOT...",
    "merge": "merge KEY",
    "slots": "slots N",
    "strategy": "strategy NAME [OPTION=VALUE ...]",
    "home": "home SLOT EXECUTOR|HOST, or home SLOT --clear",
}


class BadWords(ValueError):
    """What was typed does not fit the action."""


def read_words(action: Action, words: Sequence[str], clear: bool = False) -> dict[str, Any]:
    """Return the arguments of a command; raise ``BadWords`` that says what was typed and how it is written.

    ``clear``: what was said before is to count no longer.
    """
    if action == "home":
        return _read_home(words, clear)
    if clear:
        msg = f"only a home can be cleared; write: {_USAGE['home']}"
        raise BadWords(msg)
    if action == "set":
        return _read_settings(words)
    if action == "strategy":
        return _read_strategy(words)
    wanted = len(_USAGE[action].split()) - 1
    if len(words) != wanted:
        msg = f"got {_name_words(words)}; write: {_USAGE[action]}"
        raise BadWords(msg)
    match action:
        case "show":
            return {}
        case "move":
            return {"key": words[0], "slot": _read_number(words[1], action)}
        case "split":
            return {"key": words[0], "slots": [_read_number(slot, action) for slot in words[1].split(",")]}
        case "merge":
            return {"key": words[0]}
        case "slots":
            return {"count": _read_number(words[0], action)}
        case "set" | "strategy" | "home":
            raise AssertionError(action)


def _read_home(words: Sequence[str], clear: bool) -> dict[str, Any]:
    if len(words) != (1 if clear else 2):
        msg = f"got {_name_words(words)}{' and --clear' if clear else ''}; write: {_USAGE['home']}"
        raise BadWords(msg)
    return {"slot": _read_number(words[0], "home")} | ({} if clear else {"place": words[1]})


def _read_settings(words: Sequence[str]) -> dict[str, Any]:
    settings = {name: _read_value(value) for name, value in _read_pairs(words, "set", "setting")}
    if not settings:
        msg = f"got no setting; write: {_USAGE['set']}"
        raise BadWords(msg)
    return settings


def _read_strategy(words: Sequence[str]) -> dict[str, Any]:
    if not words or "=" in words[0]:
        msg = f"got {_name_words(words)}; write: {_USAGE['strategy']}"
        raise BadWords(msg)
    options = {
        name: [_read_value(part.strip()) for part in value.strip("[]").split(",")]
        if "," in value or value.startswith("[")
        else _read_value(value)
        for name, value in _read_pairs(words[1:], "strategy", "option")
    }
    return {"name": words[0], **({"options": options} if options else {})}


def _read_pairs(words: Sequence[str], action: Action, noun: str) -> Iterator[tuple[str, str]]:
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            msg = f"{word!r} is no {noun}; write: {_USAGE[action]}"
            raise BadWords(msg)
        yield name.strip(), value.strip()


def _read_value(text: str) -> Any:
    """Return numbers, true, false and null as what they are, and anything else as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, bool | int | float) else text


def _read_number(text: str, action: Action) -> int:
    if not text.strip().isdecimal():
        msg = f"{text!r} is no whole number from 0 on; write: {_USAGE[action]}"
        raise BadWords(msg)
    return int(text)


def _name_words(words: Sequence[str]) -> str:
    return "nothing" if not words else f"{len(words)} word{'s' if len(words) > 1 else ''} ({' '.join(words)})"
