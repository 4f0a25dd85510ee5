"""What a running flow hears: commands from its channels go to its steering, answers go back."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from anabranch.control.commands import Command, CommandChannel, Reply, Submits

POLL_SECONDS = 0.2
LAST_WORDS_SECONDS = 5.0
AT_A_BOUNDARY = ("move", "split", "merge", "slots", "strategy", "home")
"""What takes effect between two batches; settings count at once."""

logger = logging.getLogger("anabranch")


class CommandListener:
    """A thread that takes commands from one channel, in their order, until the flow ends.

    Whatever goes wrong with a command, or with the channel, the flow goes on.
    """

    def __init__(self, channel: CommandChannel, steering: Submits, on_change: Callable[[], None]) -> None:
        self._channel = channel
        self._steering = steering
        self._on_change = on_change
        self._ending = threading.Event()
        self._deaf = False
        self._thread = threading.Thread(target=self._listen, daemon=True, name="anabranch-commands")

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Refuse what still waits, and stop listening; a channel that hangs is not waited for longer than 5 s."""
        self._ending.set()
        self._thread.join(LAST_WORDS_SECONDS)

    def _listen(self) -> None:
        while not self._ending.wait(POLL_SECONDS):
            for command in self._poll():
                self._answer(self._submit(command))
        for command in self._poll():
            self._answer(Reply(command.id, ok=False, text="the flow has ended; nothing was changed"))
        with contextlib.suppress(Exception):
            self._channel.close()

    def _poll(self) -> list[Command]:
        try:
            commands = self._channel.poll()
        except Exception as error:
            if not self._deaf:
                logger.warning("commands cannot be read (%s); the flow goes on and tries again", error)
            self._deaf = True
            return []
        self._deaf = False
        return commands

    def _submit(self, command: Command) -> Reply:
        try:
            reply = self._steering.submit(command)
            if reply.ok and command.action in AT_A_BOUNDARY:
                self._on_change()
        except Exception as error:
            logger.warning("the command %s failed; the flow goes on", command.action, exc_info=True)
            return Reply(command.id, ok=False, text=f"{command.action} failed: {type(error).__name__}: {error}")
        return reply

    def _answer(self, reply: Reply) -> None:
        try:
            self._channel.reply(reply)
        except Exception as error:
            logger.warning("an answer could not be sent (%s); the flow goes on", error)
