"""A flow that a test plays, and ``anabranch ctl`` towards it."""

from __future__ import annotations

import re
import threading
from dataclasses import asdict
from typing import Any

from typer.testing import CliRunner, Result

from anabranch.cli.app import app
from anabranch.control.commands import Command, CommandChannel, Reply
from unit.cli.builders import EXCHANGE

SHOWN: dict[str, Any] = {
    "batch": 41,
    "operators": [
        {
            "operator": "per-sensor",
            "slots": 3,
            "strategy": "auto",
            "loads": [100_000, 250_000, 40_000],
            "balance": 0.16,
            "max_over_mean": 1.923,
            "extra_time": 0.923,
            "hot_keys": [
                {"key": "sensor-[17]", "share": 0.4, "slots": [[0, 0.5], [2, 0.5]]},
                {"key": "sensor-4", "share": 0.1, "slots": [[1, 1.0]]},
                {"key": "sensor-5", "share": 0.05, "slots": []},
            ],
            "moved_keys": 2,
            "split_keys": 1,
            "choice": "ranges",
            "scores": {
                "hash": {"balance": 0.2, "max_over_mean": 1.8, "extra_time": 0.8, "allowed": True, "lead_rows": 0.0},
                "pkg": {"balance": 0.97, "max_over_mean": 1.02, "extra_time": 0.02, "allowed": False},
                "plan": {"balance": 0.9, "max_over_mean": 1.1, "extra_time": 0.1, "allowed": True, "lead_rows": 1234.0},
            },
            "exchange": asdict(EXCHANGE),
            "settings": {"tolerance": 0.05, "protocol": "auto"},
            "last_decision": "slot 1 is 92 % above its share",
            "pending": "mnrt moves 3 parts of keys",
        },
        {"operator": "totals", "strategy": "auto", "settings": {}, "last_decision": "", "pending": None},
    ],
    "decisions": [
        {
            "operator": "per-sensor",
            "batch": 37,
            "sender": "balancer",
            "action": "split",
            "reason": "the busiest slot has 1.900 × its share",
            "imbalance_before": 1.9,
            "imbalance_after": 1.02,
        },
        {"operator": "all operators", "batch": 40, "sender": "ctl", "action": "set", "reason": "tolerance is 0.05"},
    ],
}


def invoke(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"})
    return runner.invoke(app, ["ctl", *(str(argument) for argument in arguments)])


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[│╭╮╰╯─]", "", text))


class PlayedFlow:
    """Takes commands from a channel and answers them; refuses to move a key to slot 9."""

    def __init__(self, channel: CommandChannel) -> None:
        self.heard: list[Command] = []
        self._channel = channel
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        while not self._ended.wait(0.01):
            for command in self._channel.poll():
                self.heard.append(command)
                self._channel.reply(self._answer(command))

    def _answer(self, command: Command) -> Reply:
        if command.arguments.get("slot") == 9:
            return Reply(command.id, False, "there is no slot 9; the flow has slots 0 to 7")
        if command.action == "show":
            return Reply(command.id, True, "after batch 41", SHOWN)
        return Reply(command.id, True, f"{command.action}: takes effect after batch 42")

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._channel.close()
