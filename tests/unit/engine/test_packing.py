"""Frames come out of an exchange as they went in."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl
import pytest

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.engine.tasks.packing import FEWEST_ROWS, pack, unpack

ROWS = 2 * FEWEST_ROWS
RNG = np.random.default_rng(5)
WHOLE = RNG.integers(-(2**62), 2**62, ROWS)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("x", RNG.integers(0, 200, ROWS) - 2**62),
        pl.Series("x", RNG.integers(0, 60_000, ROWS) + 1_700_000_000_000_000),
        pl.Series("x", RNG.integers(-(2**31), 2**31, ROWS)),
        pl.Series("x", WHOLE),
        pl.Series("x", [-(2**63), 2**63 - 1] * (ROWS // 2), pl.Int64),
        pl.Series("x", [7] * ROWS, pl.Int64),
        pl.Series("x", [7, None] * (ROWS // 2), pl.Int64),
        pl.Series("x", [None] * ROWS, pl.Int64),
        pl.Series("x", WHOLE.astype(np.uint64)),
        pl.Series("x", WHOLE.astype(np.int32)),
        pl.Series("x", RNG.random(ROWS)),
        pl.Series("x", [float("nan"), -0.0] * (ROWS // 2)),
        pl.Series("x", [f"key {number}" for number in range(ROWS)]),
        pl.Series("x", [True, False] * (ROWS // 2)),
        pl.Series("x", [datetime(2026, 1, 1)] * ROWS),
        pl.Series("x", [[1, 2], []] * (ROWS // 2)),
        pl.Series("x", [{"a": 1, "b": "c"}] * ROWS),
        pl.Series("x", WHOLE).cast(pl.Int128),
    ],
    ids=lambda column: f"{column.dtype}",
)
@pytest.mark.parametrize("rows", [0, 10, ROWS])
def test_frames_come_out_as_they_went_in(column: pl.Series, rows: int) -> None:
    frame = pl.DataFrame([column, pl.Series("constant", [1] * ROWS), pl.Series("more", WHOLE)]).head(rows)
    unpacked = unpack(pack(frame))
    assert unpacked.schema == frame.schema
    assert unpacked.equals(frame, null_equal=True)
    assert pack(frame) == pack(unpacked)


def test_whole_numbers_take_the_bytes_they_need() -> None:
    frame = pl.DataFrame({"ids": RNG.integers(0, 2**32, ROWS), "constant": [2**60] * ROWS, "hash": WHOLE})
    assert len(pack(frame)) < ROWS * 12.5


def test_what_shrinks_is_compressed() -> None:
    frame = pl.DataFrame({"rising": np.repeat(np.arange(ROWS // 64), 64), "float": [0.25, 0.5] * (ROWS // 2)})
    assert len(pack(frame)) < ROWS


MANY = WORTH_COMPILED_CODE_ROWS
TEXTS = pl.Series("text", [f"a text of some length, number {number}" for number in range(5_000)])


@pytest.mark.parametrize("different", [1, 300, 5_000])
def test_texts_that_repeat_are_sent_once(different: int) -> None:
    column = TEXTS[RNG.integers(0, different, MANY)]
    frame = pl.DataFrame([column, pl.Series("hash", RNG.integers(-(2**62), 2**62, MANY))])
    packed = pack(frame)
    assert unpack(packed).equals(frame)
    assert len(packed) < MANY * (8 + 3) + 45 * different, "whatever the compressor makes of it"
    assert pack(unpack(packed)) == packed


def test_texts_that_hardly_repeat_are_sent_as_they_are() -> None:
    frame = pl.DataFrame({"text": [f"a text of some length, number {number}" for number in range(MANY)]})
    assert unpack(pack(frame)).equals(frame)
    assert len(pack(frame)) <= len(pack(frame.head(MANY - 1))) + 100
