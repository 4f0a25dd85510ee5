"""Addresses of servers, as they may be shown."""

from __future__ import annotations


def show_address(url: str) -> str:
    """Return a server's URL as it may be printed and logged: without user, password and options."""
    scheme, _, rest = url.partition("://")
    # The last @ first: a password may hold whatever would end it elsewhere.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if rest else "(no URL)"
