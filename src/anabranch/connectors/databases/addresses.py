"""Addresses of servers: what stands in them, and how they may be shown."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from anabranch.connectors.addresses import show_address
from anabranch.errors import SinkError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Address:
    """A server's URL taken apart; what is shown of it has no password."""

    scheme: str
    host: str
    port: int | None
    user: str
    password: str
    database: str
    options: dict[str, str]

    def scrub(self, text: object) -> str:
        """Return the first line of a text without the password."""
        first = str(text).strip().splitlines()[0] if str(text).strip() else "the connection is lost"
        return first.replace(self.password, "***") if self.password else first


def fill_in(url: str) -> str:
    """Return a URL with ``${NAME}`` replaced by environment variables of the driver."""

    def value_of(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            msg = f"{show_address(url)} needs the environment variable {match[1]}, which is not set"
            raise SinkError(msg)
        return value

    return _VARIABLE.sub(value_of, url)


def read_address(url: str, schemes: tuple[str, ...], example: str) -> Address:
    """Take a URL apart; raise ``SinkError`` if it is none of these schemes."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The reason may quote a part of the password.
        parts, port = urlsplit(""), None
    if parts.scheme not in schemes or not (parts.hostname or parts.query or parts.scheme == "unix"):
        found = f"one that begins with {parts.scheme}://" if parts.scheme else "none"
        msg = (
            f"a URL such as {example} is needed, found {found}; letters like @ : / # in a password are written as %40 …"
        )
        raise SinkError(msg)
    return Address(
        parts.scheme,
        parts.hostname or "localhost",
        port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        parts.path.lstrip("/"),
        dict(parse_qsl(parts.query)),
    )
