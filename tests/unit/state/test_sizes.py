"""How many bytes of state lie where: exactly what the rows have, found without reading them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import HASH, WINDOW, RunRef
from anabranch.state.runs import RunFiles, WriteName, to_table
from anabranch.state.sizes import measure_between, measure_rows
from anabranch.state.store import open_store
from property_tests import tries

HASHES = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**40, 2**63, 2**64 - 1]))
TEXTS = st.text("aä", max_size=5)


def files_in(folder: Path) -> RunFiles:
    return RunFiles(open_store(str(folder)), "state/0/0", WriteName(1, 0, 0, "cafe"))


def bytes_of(row: dict[str, Any]) -> int:
    """Return what one row of ``make_run`` has: numbers by width, texts and lists with an offset each."""
    text = 8 + len(row["text"].encode())
    numbers = 8 + 4 * len(row["numbers"])
    texts = 8 + sum(8 + len(one.encode()) for one in row["texts"])
    pair = 2 + 8 + len(row["pair"]["name"].encode())
    return 8 + text + numbers + texts + pair + (8 if WINDOW in row else 0)


def make_run(rows: list[dict[str, Any]], windowed: bool) -> pl.DataFrame:
    schema = {
        HASH: pl.UInt64,
        "text": pl.String,
        "numbers": pl.List(pl.Float32),
        "texts": pl.List(pl.String),
        "pair": pl.Struct({"number": pl.Int16, "name": pl.String}),
        **({WINDOW: pl.Int64} if windowed else {}),
    }
    return pl.DataFrame(rows, schema=schema).sort([WINDOW, HASH] if windowed else [HASH])


ROWS = st.fixed_dictionaries(
    {
        HASH: HASHES,
        "text": TEXTS,
        "numbers": st.lists(st.floats(width=32), max_size=3),
        "texts": st.lists(TEXTS, max_size=2),
        "pair": st.fixed_dictionaries({"number": st.integers(0, 9), "name": TEXTS}),
        WINDOW: st.integers(0, 2),
    }
)


@tries(60)
@given(
    runs=st.lists(st.lists(ROWS, min_size=1, max_size=8), max_size=3),
    cuts=st.lists(HASHES, max_size=5),
    gone=st.tuples(HASHES, HASHES).map(sorted),
    windowed=st.booleans(),
    dropped=st.integers(0, 3),
)
def test_what_lies_between_cuts_is_what_its_rows_have(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[list[dict[str, Any]]],
    cuts: list[int],
    gone: list[int],
    windowed: bool,
    dropped: int,
) -> None:
    files = files_in(tmp_path_factory.mktemp("sizes"))
    edges = sorted({0, *cuts})
    expected = [0] * len(edges)
    refs: list[RunRef] = []
    for rows in runs:
        frame = make_run([row if windowed else {k: row[k] for k in row if k != WINDOW} for row in rows], windowed)
        first = min(dropped, frame.height)
        refs.append(replace(files.write(frame), first_live=first, gone=((gone[0], gone[1]),)))
        for row in frame[first:].to_dicts():
            if not gone[0] <= row[HASH] <= gone[1]:
                expected[max(i for i, edge in enumerate(edges) if edge <= row[HASH])] += bytes_of(row)
    assert measure_between(refs, files, np.array(edges, np.uint64)).tolist() == expected


def test_a_run_that_cannot_be_read_counts_nothing(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    rows = pl.DataFrame({HASH: pl.Series([1, 2], dtype=pl.UInt64)})
    whole, broken, lost = (files.write(rows) for _ in range(3))
    (tmp_path / broken.file).write_bytes(b"ARROW1\0\0 and nothing that makes sense")
    (tmp_path / lost.file).unlink()
    assert measure_between([broken, lost, whole], files, np.zeros(1, np.uint64)).tolist() == [16]


@pytest.mark.parametrize(
    ("column", "sizes"),
    [
        (pl.Series([1, None, 3], dtype=pl.Int64), [8, 8, 8]),
        (pl.Series([1, 2, 3], dtype=pl.Int128), [16, 16, 16]),
        (pl.Series(["a", None, "abc"]), [9, 8, 11]),
        (pl.Series([b"", b"xy", None]), [8, 10, 8]),
        (pl.Series([[1], [1, 2], None], dtype=pl.List(pl.Int64)), [16, 24, 8]),
        (pl.Series([[1, 2], None, [5, 6]], dtype=pl.Array(pl.Int16, 2)), [4, 4, 4]),
        (pl.Series([["a", "bc"], ["", "d"]] * 2, dtype=pl.Array(pl.String, 2))[:3], [19, 17, 19]),
        (pl.Series(["a", "b", "a"], dtype=pl.Enum(["a", "b"])), [1, 1, 1]),
        (pl.Series([[{"a": "x"}], [], [{"a": ""}, {"a": "yz"}]]), [17, 8, 26]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, pl.Series) else "",
)
def test_rows_have_the_bytes_of_their_values(column: pl.Series, sizes: list[int]) -> None:
    assert measure_rows(to_table(column.alias("value").to_frame())).tolist() == sizes
    # Behind other rows, too: columns of a slice begin somewhere in their buffers.
    sliced = to_table(pl.concat([column, column]).alias("value").to_frame()).slice(3)
    assert measure_rows(sliced).tolist() == sizes
