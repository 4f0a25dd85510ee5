"""Ports for servers: each is given to one process, and to nobody while somebody listens to it."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from anabranch.lab import ports
from anabranch.lab.errors import LabError
from anabranch.lab.ports import find_free_port, find_free_ports


def test_ports_are_different_and_never_those_of_outgoing_connections() -> None:
    found = find_free_ports(5)
    assert len(set(found)) == 5
    assert max(found) < 32_768


def test_a_port_is_given_to_one_process_only_and_not_while_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    first = find_free_port()
    monkeypatch.setattr(ports, "_SERVER_PORTS", range(first, first + 1))
    ask = f"from anabranch.lab import ports as p; p._SERVER_PORTS = range({first}, {first + 1})"
    asked = [sys.executable, "-c", f"{ask}; p.find_free_port()"]
    refused = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert f"no port from {first} to {first} is free at 127.0.0.1" in refused.stderr
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(ports, "_SERVER_PORTS", range(port, port + 1))
        with pytest.raises(LabError, match="is free at"):
            find_free_port()
