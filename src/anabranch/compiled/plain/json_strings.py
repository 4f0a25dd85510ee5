"""Plain twins of ``json_strings``."""

from __future__ import annotations

import json
import re

from anabranch.compiled.plain.memory import bytes_at, length_of, line_at, write_bytes

_ESCAPE = rb'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])'
_STRING = rb'(?:[^"\\\x00-\x1f]|' + _ESCAPE + rb')*(?=")'
_PAIR_OR_ESCAPE = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|" + _ESCAPE


def pass_blanks(address: int) -> int:
    """Return the address of the next byte that is no blank of JSON's, or of the line's end."""
    return address + length_of(rb"[ \t\r]*", address)


def pass_string(address: int) -> tuple[int, bool, bool]:
    """Return the address of the closing quote, 0 if the string is malformed; if it has escapes; if all is ASCII."""
    found = re.match(_STRING, line_at(address))
    if found is None:
        return 0, False, False
    return address + found.end(), b"\\" in found[0], found[0].isascii()


def write_unescaped(address: int, last: int, side: int) -> int:
    """Write a valid string's text to the side; return where it ends there, 0 if half of a surrogate pair is alone."""
    try:
        text = re.sub(_PAIR_OR_ESCAPE, _unescape, bytes_at(address, last - address))
    except UnicodeEncodeError:
        return 0
    write_bytes(side, text)
    return side + len(text)


def _unescape(escape: re.Match[bytes]) -> bytes:
    character: str = json.loads(b'"' + escape[0] + b'"')
    return character.encode()
