"""A wire to a server that can be cut: what is sent over it stays on the way until it is mended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

CHUNK_BYTES = 65536


class CuttableWire:
    """Forwards connections to a port of this host, while it is whole."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._whole = threading.Event()
        self._whole.set()
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where clients come in."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """From now on nothing arrives: connections stay open, and nobody answers."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything arrive that was sent meanwhile."""
        self._whole.set()

    def close(self) -> None:
        """Take the wire away."""
        self._whole.set()
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._ends += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                self._whole.wait()
                target.sendall(chunk)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cuttable_wire(port: int) -> Iterator[CuttableWire]:
    """Lay a wire while the block runs."""
    wire = CuttableWire(port)
    try:
        yield wire
    finally:
        wire.close()
