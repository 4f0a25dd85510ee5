"""Input of a Python task: nothing that arrived waits to be acknowledged."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"

# A connection on which each side has answered the other: the kernel then acknowledges with the next answer, or late.
CONVERSATION = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
far = socket.create_connection(listening.getsockname())
near, _ = listening.accept()
for _ in range(20):
    far.sendall(b"question")
    near.recv(100)
    near.sendall(b"answer")
    far.recv(100)
def is_prompt():
    return bool(near.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
from anabranch.spark.prompt_input import acknowledge_arrivals, promptly
"""


def _run(script: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", CONVERSATION + script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCES)},
        timeout=60,
        check=True,
    )
    return ran.stdout.strip()


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be asked to acknowledge at once")
class TestOnLinux:
    def test_every_piece_is_asked_for_with_the_last_one_acknowledged(self) -> None:
        script = """
def pieces():
    for number in range(3):
        asked.append(is_prompt())
        far.sendall(b"piece")
        near.recv(100)
        near.sendall(b"answer")
        far.recv(100)
        yield number
asked = []
print(is_prompt(), list(promptly(pieces())), asked)
"""
        assert _run(script) == "False [0, 1, 2] [True, True, True]"

    def test_connections_stay_open_and_other_files_are_left_alone(self) -> None:
        script = """
import os
inside, outside = os.pipe()
local, other = socket.socketpair()
acknowledge_arrivals()
acknowledge_arrivals()
far.sendall(b"still there")
print(near.recv(100).decode(), os.fstat(inside).st_ino > 0, local.send(b"x"), listening.fileno() > 0)
"""
        assert _run(script) == "still there True 1 True"

    def test_numbers_of_closed_connections_given_to_files_are_left_alone_and_new_connections_found(self) -> None:
        script = """
import os
acknowledge_arrivals()
number = near.fileno()
near.close(), far.close()
inside, outside = os.pipe()
assert number in (inside, outside)
acknowledge_arrivals()
far = socket.create_connection(listening.getsockname())
near, _ = listening.accept()
for _ in range(20):
    far.sendall(b"question")
    near.recv(100)
    near.sendall(b"answer")
    far.recv(100)
before = is_prompt()
acknowledge_arrivals()
print(os.write(outside, b"x"), os.read(inside, 9), before, is_prompt())
"""
        assert _run(script) == "1 b'x' False True"
