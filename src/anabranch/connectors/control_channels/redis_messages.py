"""Commands as messages through a Redis server, by publish and subscribe, under the flow's name.

Redis keeps no message: what is sent while the flow is not connected is not heard. Channels are shared by all databases
of a server, so two flows need two names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import redis
from redis.client import PubSub

from anabranch.connectors.addresses import show_address
from anabranch.connectors.redis.servers import connect_redis
from anabranch.control.command_texts import MalformedCommand, read_command, read_reply, write_command, write_reply
from anabranch.control.commands import Command, Reply
from anabranch.errors import ControlError

ANSWER_SECONDS = 2.0
"""How long the server may take to connect or to answer; it never keeps a batch waiting."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
MOST_COMMANDS_AT_ONCE = 100

logger = logging.getLogger("anabranch")


class RedisChannel:
    """The flow's end. A server that is out of reach is tried again, with growing pauses, and is no failure."""

    def __init__(self, url: str, flow: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._place = show_address(url)
        self._flow = flow
        self._monotonic = monotonic
        self._client = _connect(url)
        self._subscription: PubSub | None = None
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._next_try = float("-inf")
        self._lost = False

    def poll(self) -> list[Command]:
        """Return the commands that came since the last call, in their order, each once; refuse what is none."""
        if self._subscription is None and self._monotonic() < self._next_try:
            return []
        found: list[Command] = []
        try:
            subscription = self._subscribe()
            while len(found) < MOST_COMMANDS_AT_ONCE:
                message = subscription.get_message(timeout=0)
                if message is None:
                    break
                if message["type"] == "message":
                    found += self._read(message["data"])
                else:
                    self._find_again()
        except (redis.RedisError, OSError) as error:
            self._lose(error)
        return found

    def reply(self, reply: Reply) -> None:
        """Send an answer to whoever asked, if the server can be reached."""
        try:
            self._client.publish(_replies(self._flow, reply.id), write_reply(reply))
        except (redis.RedisError, OSError) as error:
            self._lose(error)

    def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        self._client.close()

    def _subscribe(self) -> PubSub:
        if self._subscription is None:
            self._subscription = _listen(self._client, _commands(self._flow))
        return self._subscription

    def _find_again(self) -> None:
        """Note that the server has confirmed the subscription: only then is it known to let this flow listen."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        if self._lost:
            self._lost = False
            logger.warning("commands through %s are heard again", self._place)

    def _read(self, text: bytes) -> list[Command]:
        try:
            return [read_command(text)]
        except MalformedCommand as error:
            logger.warning("a message through %s is refused: %s", self._place, error)
            if error.id is not None:
                self.reply(Reply(error.id, ok=False, text=str(error)))
            return []

    def _lose(self, error: Exception) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        self._next_try = self._monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        if not self._lost:
            self._lost = True
            logger.warning(
                "%s is out of reach (%s): the flow goes on, and commands through it are not heard until it is back",
                self._place,
                error,
            )


def send(url: str, flow: str, command: Command, timeout_seconds: float) -> Reply:
    """Send a command to the flow of this name, and return its answer.

    Raises ``ControlError`` if the server is out of reach, if no flow or more than one listens under the name, or if no
    answer comes in time: then the command may still be done.
    """
    client = _connect(url)
    try:
        with _listen(client, _replies(flow, command.id)) as replies:
            # The server has the subscription when it says so; an answer before that would be lost.
            replies.get_message(timeout=ANSWER_SECONDS)
            _check_listeners(client, flow, show_address(url))
            client.publish(_commands(flow), write_command(command))
            deadline = time.monotonic() + timeout_seconds
            while (rest := deadline - time.monotonic()) > 0:
                message = replies.get_message(timeout=rest)
                if message is not None and message["type"] == "message":
                    return read_reply(message["data"])
    except (redis.RedisError, OSError) as error:
        msg = f"{show_address(url)} cannot be used: {error}; see that the server runs, or give the flow's checkpoint"
        raise ControlError(msg) from error
    finally:
        client.close()
    msg = (
        f"no answer within {timeout_seconds:g} s from the flow {flow!r} through {show_address(url)}; "
        "the command may still be done: `show` will tell"
    )
    raise ControlError(msg)


def _check_listeners(client: redis.Redis, flow: str, place: str) -> None:
    listeners = dict(client.pubsub_numsub(_commands(flow))).get(_commands(flow).encode(), 0)
    if listeners == 1:
        return
    if listeners:
        msg = (
            f"{listeners} flows listen as {flow!r} at {place}, and each would do the command; "
            "give the checkpoint of the one that is meant"
        )
        raise ControlError(msg)
    others = ", ".join(sorted(_flow_of(channel) for channel in client.pubsub_channels(_commands("*"))))
    found = f"there are {others}" if others else "nor does any other"
    msg = f"no flow {flow!r} listens at {place}, {found}; a flow listens there when it is run with control={place!r}"
    raise ControlError(msg)


def _connect(url: str) -> redis.Redis:
    client: redis.Redis = connect_redis(
        url, ControlError, answer_seconds=ANSWER_SECONDS, connect_seconds=ANSWER_SECONDS
    )
    return client


def _listen(client: redis.Redis, channel: str) -> PubSub:
    subscription: PubSub = client.pubsub()  # type: ignore[no-untyped-call]
    subscription.subscribe(channel)
    return subscription


def _flow_of(channel: bytes | str) -> str:
    text = channel.decode() if isinstance(channel, bytes) else channel
    return text.removeprefix("anabranch:").removesuffix(":commands")


def _commands(flow: str) -> str:
    return f"anabranch:{flow}:commands"


def _replies(flow: str, id: str) -> str:
    return f"anabranch:{flow}:replies:{id}"
