"""Addresses of servers, as they may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit


def hide_password(url: str) -> str:
    """Return a server's URL as it may be printed and logged: without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
