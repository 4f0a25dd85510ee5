"""Where a Kafka cluster is and how to log in to it, with everything secret kept out of sight."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.connectors.extras import import_extra
from anabranch.errors import FlowError, SourceError

REQUEST_SECONDS = 5.0
"""How long one question to the cluster may take before it counts as out of reach."""

_OURS = {
    "bootstrap.servers": "give servers",
    "enable.auto.commit": "the flow's checkpoint keeps the offsets",
    "enable.auto.offset.store": "the flow's checkpoint keeps the offsets",
    "enable.partition.eof": "the reader needs it",
    "auto.offset.reset": "give start, and on_loss for what is lost",
}
_ISOLATION = "isolation.level"
_BROKEN_OFF = re.compile(r"transport failure|disconnected|timed out", re.IGNORECASE)
_CERTIFICATE_REFUSED = re.compile(r"alert (.*certificate|unknown ca|handshake failure)")


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """The servers and librdkafka's settings; the settings show in no text, as passwords are among them."""

    servers: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def reads_committed(self) -> bool:
        """Say whether messages of open and aborted transactions are left out."""
        return dict(self.options).get(_ISOLATION, "read_committed") == "read_committed"

    def client(self, **defaults: str | int | bool) -> dict[str, Any]:
        """Return the settings of a librdkafka client; names have ``_`` for ``.``, and the user's settings win."""
        given: dict[str, Any] = {name.replace("_", "."): value for name, value in defaults.items()}
        # Lost connections are told by whoever waits for them, once, and not by the library, again and again.
        quiet = {"log_level": 2, "log.connection.close": False}
        return {**quiet, **given, **dict(self.options), "bootstrap.servers": self.servers}


def make_connection(servers: str | list[str] | tuple[str, ...], options: Mapping[str, Any] | None) -> KafkaConnection:
    """Return the connection; raise ``FlowError`` for addresses and settings that cannot work."""
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [server.strip() for server in listed]
    for address in addresses:
        if not re.fullmatch(r"(?:\w+://)?[^\s,/@]+:\d+", address):
            # What stands there may be a URL with a password in it: it is not repeated.
            msg = "servers are given as 'host:port', several with a comma between them; user and password go to options"
            raise FlowError(msg)
    settings: dict[str, str] = {}
    for name, value in (options or {}).items():
        if name in _OURS:
            msg = f"the Kafka option {name!r} cannot be set: {_OURS[name]}"
            raise FlowError(msg)
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    if settings.get(_ISOLATION, "read_committed") not in ("read_committed", "read_uncommitted"):
        msg = f"the Kafka option {_ISOLATION!r} is neither 'read_committed' nor 'read_uncommitted'"
        raise FlowError(msg)
    return KafkaConnection(",".join(addresses), tuple(sorted(settings.items())))


def explain_refusal(name: str, text: str) -> str | None:
    """Return what is wrong if brokers refuse a client, by the name and the text of librdkafka's error; None otherwise.

    A broker that restarts breaks off handshakes, too: that is no refusal, and neither is what has no clear sign of one.
    """
    if name in ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED") and not _BROKEN_OFF.search(text):
        return "user or password is wrong; correct sasl.* in options"
    if "certificate verify failed" in text:
        return (
            "their certificate is not one that the client trusts; give the certificate of the authority that signed it "
            "as ssl.ca.location in options, and an address that it is made out to"
        )
    if _CERTIFICATE_REFUSED.search(text):
        return "they want a certificate of the client; correct ssl.certificate.location and ssl.key.location in options"
    return None


def load_confluent_kafka() -> Any:
    """Return the module ``confluent_kafka``, or say how to install it."""
    return import_extra(
        "confluent_kafka", "kafka", "Kafka needs the package confluent-kafka; install it with", SourceError
    )
