"""Staged result files, on a disk or in an object store, as the driver sees them."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence

import polars as pl

from anabranch.errors import SinkError
from anabranch.model import StagedFile
from anabranch.state.objects import delete_objects, is_url, open_objects, read_object


def real_place(path: str) -> str:
    """Return one text for one place, however it was spelled: a URL as it is, else the real path."""
    return path if is_url(path) else os.path.realpath(path)


def fetch_staged(path: str) -> bytes | None:
    """Return a file's bytes, None if it is gone."""
    try:
        if is_url(path):
            folder, name = path.rsplit("/", 1)
            return read_object(open_objects(folder), name)
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}; make it readable and start again"
        raise SinkError(msg) from error


def drop_staged(path: str) -> None:
    """Delete a staged file, if it is still there."""
    with contextlib.suppress(FileNotFoundError):
        if is_url(path):
            folder, name = path.rsplit("/", 1)
            delete_objects(open_objects(folder), [name])
        else:
            os.remove(path)


def read_staged(staged: Sequence[tuple[StagedFile, str]]) -> pl.DataFrame | None:
    """Return the rows of a batch's staged Arrow files in order, None if it has no rows."""
    frames: list[pl.DataFrame] = []
    for file, path in staged:
        if file.rows:
            held = fetch_staged(path)
            if held is None:
                msg = f"the staged results {path} are gone; return to an earlier batch with `anabranch state rollback`"
                raise SinkError(msg)
            frames.append(pl.read_ipc(io.BytesIO(held)))
    return pl.concat(frames) if frames else None
