"""Connections to brokers that are spoken to directly: in the clear, over TLS, with a login, or both."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from anabranch.connectors.kafka_topics.connection import REQUEST_SECONDS, KafkaConnection

CLIENT_NAME = b"anabranch"
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_PROTOCOLS = {
    "plaintext": (False, False),
    "ssl": (True, False),
    "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}
"""Name → over TLS, with a login."""
_PLAIN = "PLAIN"
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SPOKEN = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}
_LEFT_TO_THE_CLIENT = ("security.", "sasl.", "ssl.", "enable.s", "client.rack", "broker.address.family")
"""Beginnings of settings that change who is spoken to, or how; those above aside, they are the client's alone."""
_RENEWED_EARLY_SECONDS = 10.0


class LoginFailed(OSError):
    """A broker did not take the login; the client says why, in words that show no secret."""


@dataclass(slots=True)
class BrokerConnection:
    """An open connection, and until when the broker takes requests on it."""

    socket: socket.socket
    expires_at: float | None = None
    """By the monotonic clock; None for as long as it lasts."""

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and time.monotonic() > self.expires_at

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> memoryview:
        """Return the next answer, without its length."""
        return self._receive_bytes(int.from_bytes(self._receive_bytes(4), "big"))

    def close(self) -> None:
        self.socket.close()

    def _receive_bytes(self, size: int) -> memoryview:
        answer = np.empty(size, np.uint8).data
        received = 0
        while received < size:
            count = self.socket.recv_into(answer[received:])
            if not count:
                msg = "the broker closed the connection"
                raise OSError(msg)
            received += count
        return answer


@dataclass(frozen=True)
class Security:
    """How brokers are spoken to; what it holds shows in no text."""

    over_tls: bool
    mechanism: str | None
    options: Mapping[str, str] = field(repr=False)

    def connect(self, address: tuple[str, int]) -> BrokerConnection:
        """Open a connection that takes requests; raise ``OSError`` if that fails."""
        opened = socket.create_connection(address, REQUEST_SECONDS)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.over_tls:
                opened = self._context.wrap_socket(opened, server_hostname=address[0])
            connection = BrokerConnection(opened)
            if self.mechanism is not None:
                self._log_in(connection, self.mechanism)
        except BaseException:
            opened.close()
            raise
        return connection

    @cached_property
    def _context(self) -> ssl.SSLContext:
        given = self.options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        trusted = given.get("ssl.ca.location", "probe")
        if trusted == "probe":
            context.load_default_certs()
        elif Path(trusted).is_dir():
            context.load_verify_locations(capath=trusted)
        else:
            context.load_verify_locations(cafile=trusted)
        if "ssl.certificate.location" in given:
            context.load_cert_chain(
                given["ssl.certificate.location"], given.get("ssl.key.location"), given.get("ssl.key.password")
            )
        return context

    def _log_in(self, connection: BrokerConnection, mechanism: str) -> None:
        name = mechanism.encode()
        connection.send(encode_request(_SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name))
        (error,) = struct.unpack_from(">h", connection.receive(), 4)
        if error:
            msg = f"the broker refuses {mechanism}: error {error}"
            raise LoginFailed(msg)
        user, password = self.options.get("sasl.username", ""), self.options.get("sasl.password", "")
        if mechanism == _PLAIN:
            lifetime_ms, _ = _authenticate(connection, f"\0{user}\0{password}".encode())
        else:
            lifetime_ms = _log_in_by_scram(connection, user, password, _DIGESTS[mechanism])
        if lifetime_ms > 0:
            # After that it closes the connection: a new one is made a little earlier.
            seconds = lifetime_ms / 1e3
            connection.expires_at = time.monotonic() + max(seconds / 2, seconds - _RENEWED_EARLY_SECONDS)


IN_THE_CLEAR = Security(over_tls=False, mechanism=None, options={})


def find_security(connection: KafkaConnection) -> Security | None:
    """Return how to speak to brokers directly; None if that is left to the client, which knows more ways."""
    given = dict(connection.options)
    if any(name.startswith(_LEFT_TO_THE_CLIENT) and name not in _SPOKEN for name in given):
        return None
    known = _PROTOCOLS.get(given.get("security.protocol", "plaintext").lower())
    if known is None:
        return None
    over_tls, with_login = known
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")) if with_login else None
    if mechanism is not None and mechanism != _PLAIN and mechanism not in _DIGESTS:
        return None
    return Security(over_tls, mechanism, given)


def encode_request(api: int, version: int, body: bytes) -> bytes:
    """Return a request, with its length before it."""
    head = struct.pack(">hhih", api, version, 1, len(CLIENT_NAME)) + CLIENT_NAME
    return struct.pack(">i", len(head) + len(body)) + head + body


def _authenticate(connection: BrokerConnection, proof: bytes) -> tuple[int, bytes]:
    """Send one step of a login; return how long it holds, in ms or 0, and what the broker says to it."""
    connection.send(encode_request(_SASL_AUTHENTICATE, 1, struct.pack(">i", len(proof)) + proof))
    answer = connection.receive()
    error, text_bytes = struct.unpack_from(">hh", answer, 4)
    if error:
        msg = f"the broker does not take the login: error {error}"
        raise LoginFailed(msg)
    at = 8 + max(0, text_bytes)
    (size,) = struct.unpack_from(">i", answer, at)
    said = bytes(answer[at + 4 : at + 4 + size])
    (lifetime_ms,) = struct.unpack_from(">q", answer, at + 4 + size)
    return lifetime_ms, said


def _log_in_by_scram(connection: BrokerConnection, user: str, password: str, digest: str) -> int:
    """Log in as RFC 5802 says; return how long it holds, in ms or 0."""
    nonce = secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    _, challenge = _authenticate(connection, f"n,,{first}".encode())
    asked = dict(part.split("=", 1) for part in challenge.decode().split(","))
    if not asked["r"].startswith(nonce):
        msg = "the broker answers somebody else's login"
        raise LoginFailed(msg)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(asked["s"]), int(asked["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={asked['r']}"
    signed = f"{first},{challenge.decode()},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    lifetime_ms, outcome = _authenticate(connection, f"{last},p={base64.b64encode(proof).decode()}".encode())
    server_key = hmac.digest(salted, b"Server Key", digest)
    expected = base64.b64encode(hmac.digest(server_key, signed, digest))
    if not hmac.compare_digest(outcome, b"v=" + expected):
        msg = "the broker does not know the password itself"
        raise LoginFailed(msg)
    return lifetime_ms
