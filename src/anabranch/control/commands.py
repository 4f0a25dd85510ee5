"""What people may tell a running flow, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

Action = Literal["show", "set", "move", "split", "merge", "slots", "strategy", "home"]
ACTIONS: tuple[str, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Command:
    """What somebody wants, of one stateful operator or, where none is named, for the only one or for all."""

    id: str
    """Random, so that the answer finds the one who asked."""
    action: Action
    operator: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """*set*: setting → value. *move*: key, slot. *split*: key, slots (a list). *merge*: key. *slots*: count.
    *strategy*: name and, if need be, options (an object). *home*: slot and, unless it is to be the policy's choice,
    place, an executor or a host. Keys are text, as a person types them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a command: what will happen, or why not."""

    id: str
    ok: bool
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON data, for *show*."""


class CommandChannel(Protocol):
    """How commands reach a running flow, and how answers come back."""

    def poll(self) -> list[Command]:
        """Return the commands that came since the last call, in their order, each once."""
        ...

    def reply(self, reply: Reply) -> None:
        """Send an answer to whoever asked."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


@runtime_checkable
class Submits(Protocol):
    """Whoever decides what becomes of a command; called by several threads at once, also while a batch runs."""

    def submit(self, command: Command) -> Reply:
        """Return what the command will do, and from which batch on, or why it is refused; do not wait for it."""
        ...
