"""Staged Arrow files read back on the driver."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence

import polars as pl

from anabranch.errors import SinkError
from anabranch.model import StagedFile


def read_staged(staged: Sequence[tuple[StagedFile, str]]) -> pl.DataFrame | None:
    """Return the rows of a batch's staged Arrow files in order, None if it has no rows."""
    frames = [pl.read_ipc(io.BytesIO(_fetch(path))) for file, path in staged if file.rows]
    return pl.concat(frames) if frames else None


def _fetch(path: str) -> bytes:
    if "://" not in path:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            msg = f"the staged results {path} cannot be read: {error.strerror}; return to an earlier batch"
            raise SinkError(msg) from error
    import obstore

    folder, name = os.path.split(path)
    return bytes(obstore.get(obstore.store.from_url(folder), name).bytes())
