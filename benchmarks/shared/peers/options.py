"""What a peer of a bench is told on its command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any


def read_options(
    defaults: Mapping[str, int | float | str] | None = None, /, **more: Callable[[str], Any]
) -> argparse.Namespace:
    """Return the places for output, checkpoint and result, which every peer is told, and what else it must be told.

    ``files_per_batch=int`` is ``--files-per-batch`` with a whole number. What is in ``defaults`` may be left out.
    """
    parser = argparse.ArgumentParser()
    kinds: dict[str, Callable[[str], Any]] = {"output": str, "checkpoint": str, "result": str, **more}
    for name, kind in kinds.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, required=True)
    for name, default in (defaults or {}).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()
