"""Values compared as they are: NaN is NaN, and -0.0 is not 0.0."""

from __future__ import annotations

import math
import struct
from typing import Any


def same(first: Any, second: Any) -> bool:
    """Say whether two values are the same, also inside of lists and dictionaries."""
    if isinstance(first, float) and isinstance(second, float):
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) and math.isnan(second)
        return struct.pack("<d", first) == struct.pack("<d", second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(same(*pair) for pair in zip(first, second, strict=True))
    return type(first) is type(second) and bool(first == second)
