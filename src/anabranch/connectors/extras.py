"""Packages that only some connectors need: they are imported where they are used, not by every flow."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anabranch.errors import AnabranchError


def import_extra(module: str, extra: str, need: str, error: type[AnabranchError]) -> Any:
    """Return a module; if it is not installed, raise an ``error`` that says the need and how to install the extra."""
    try:
        return import_module(module)
    except ImportError as missing:
        msg = f"{need}: pip install 'anabranch[{extra}]'"
        raise error(msg) from missing
