"""Bytes with a little harm done to them."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return bytes that were cut, lengthened, or changed in a place or two; now and then as they were."""
    value = bytearray(whole)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(value)))
        match draw(st.sampled_from(["cut", "drop", "set", "flip", "insert", "append"])):
            case "cut":
                del value[place:]
            case "drop":
                del value[place : place + draw(st.integers(1, 3))]
            case "set" if place < len(value):
                value[place] = draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
            case "flip" if place < len(value):
                value[place] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                value[place:place] = draw(st.binary(min_size=1, max_size=3))
            case "append":
                value += draw(st.sampled_from([b"\x00", b"\x80", b"\xff" * 11, b"\x01"]))
    return bytes(value)
