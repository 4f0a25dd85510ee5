"""How a compiled loop is compared with its plain twin."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

SMALLEST, LARGEST = -(2**63), 2**63 - 1
INT64 = st.sampled_from([SMALLEST, SMALLEST + 1, -1, 0, 1, LARGEST - 1, LARGEST]) | st.integers(SMALLEST, LARGEST)
UINT64 = st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
SLACK_BYTES = 64
"""What loops that are given an address may look at behind the end."""


class Memory:
    """Bytes at an address, with a line end and some more behind them."""

    def __init__(self, content: bytes, more: bytes = b"\n") -> None:
        self.size = len(content)
        self.array = np.frombuffer(bytearray(content + more + bytes(SLACK_BYTES)), np.uint8)

    @property
    def at(self) -> int:
        return int(self.array.ctypes.data)

    @property
    def end(self) -> int:
        return self.at + self.size

    def __bytes__(self) -> bytes:
        return self.array.tobytes()


@cache
def callable_from_python(intrinsic: Any) -> Callable[..., Any]:
    """Return a compiled function that does nothing but call an intrinsic."""

    def call(*arguments: Any) -> Any:
        return intrinsic(*arguments)

    compiled: Callable[..., Any] = numba.njit(call)
    return compiled


def check_same(loop: Callable[..., Any], twin: Callable[..., Any], *arguments: Any) -> Any:
    """Fail unless both return the same and leave the same in the arrays that they are given; return what they do."""
    (found, left), (expected, expected_left) = _run(loop, arguments), _run(twin, arguments)
    assert as_plain(found) == as_plain(expected)
    for one, other in zip(left, expected_left, strict=True):
        assert as_bytes(one) == as_bytes(other), (one, other)
    return expected


def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, list[NDArray[Any]]]:
    given = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    return function(*given), [one for one in given if isinstance(one, np.ndarray)]


def as_plain(value: Any) -> Any:
    """Return what a loop returns without NumPy's types; floats by their digits, which tell -0.0 from 0.0."""
    if isinstance(value, tuple):
        return tuple(map(as_plain, value))
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return repr(value) if isinstance(value, float) else value


def as_bytes(array: NDArray[Any]) -> bytes:
    """Return an array's content; what is no number is the same whichever it is."""
    return (np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array).tobytes()


def several(values: st.SearchStrategy[Any], dtype: Any, **sizes: int) -> st.SearchStrategy[NDArray[Any]]:
    """Return arrays of values."""
    return st.lists(values, **({"max_size": 60} | sizes)).map(lambda found: np.array(found, dtype))


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Return bytes as they should be, cut off, with one byte changed, with some more behind them, or anything."""
    content = draw(whole)
    match draw(st.sampled_from(["whole", "cut", "changed", "longer", "wild"])):
        case "cut":
            return content[: draw(st.integers(0, len(content)))]
        case "changed" if content:
            place = draw(st.integers(0, len(content) - 1))
            return content[:place] + bytes([draw(st.integers(0, 255))]) + content[place + 1 :]
        case "longer":
            return content + draw(st.binary(max_size=9))
        case "wild":
            return draw(st.binary(max_size=60))
    return content
