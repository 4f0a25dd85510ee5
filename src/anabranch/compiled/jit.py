"""Loops that are compiled to machine code, once for all processes of a machine where that can be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compile_loop(function: Any) -> Callable[..., Any]:
    """Return the compiled function; importing Numba takes as long as much reading, so it is imported only now."""
    import numba

    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Nowhere to keep what is compiled: this process compiles for itself, in a few seconds at most.
        compiled = numba.njit(nogil=True)(function)
    return compiled
