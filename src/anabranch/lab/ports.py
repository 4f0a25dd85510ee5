"""Ports for servers that this process starts."""

from __future__ import annotations

import random
import socket

from anabranch.lab.errors import LabError

LOOPBACK = "127.0.0.1"

# Below the ports that systems give to outgoing connections: a client of anybody's may not sit on a server's port
# before it starts, or while it is down for a moment.
_SERVER_PORTS = range(20_000, 32_768)


class _PortClaims:
    """Ports that this process may use for servers, and no other process that asks here as long as it lives."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def claim(self, address: str) -> int:
        """Return a port that nobody uses or has claimed at this address."""
        for port in random.sample(_SERVER_PORTS, len(_SERVER_PORTS)):
            # Servers speak TCP, so the datagram port of the same number is free to stand for the claim.
            held = socket.socket(type=socket.SOCK_DGRAM)
            try:
                held.bind((address, port))
                with socket.socket() as server:
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    server.bind((address, port))
            except OSError:
                held.close()
                continue
            self._held.append(held)
            return port
        msg = f"no port from {_SERVER_PORTS.start} to {_SERVER_PORTS.stop - 1} is free at {address}"
        raise LabError(msg)


_CLAIMS = _PortClaims()


def find_free_ports(count: int, address: str = LOOPBACK) -> list[int]:
    """Return ports for servers of this process: nobody listens to them, and no other process gets them from here."""
    return [_CLAIMS.claim(address) for _ in range(count)]


def find_free_port(address: str = LOOPBACK) -> int:
    """Return a port for a server of this process."""
    return find_free_ports(1, address)[0]
