from __future__ import annotations

import gzip
import io
import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.filesystem.line_ranges import (
    CompressedDamage,
    decompress_pieces,
    open_planned,
    read_lines_starting_in,
)
from anabranch.errors import SourceError

lines = st.lists(st.sampled_from([b"", b"a", b"bc", b"long line", b"\r", b"x\r"]), max_size=12)


@given(lines, st.booleans(), st.lists(st.integers(0, 80), max_size=8), st.integers(0, 5))
def test_any_cut_into_ranges_gives_every_line_exactly_once(
    content: list[bytes], ends_with_newline: bool, cuts: list[int], grown_bytes: int
) -> None:
    text = b"\n".join(content) + (b"\n" if ends_with_newline else b"")
    file = io.BytesIO(text + b"z" * grown_bytes)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [read_lines_starting_in(file, first, last, len(text)) for first, last in itertools.pairwise(edges)]
    assert b"".join(pieces) == text
    assert all(piece.endswith(b"\n") for piece in pieces[:-1] if piece and not text.endswith(piece))


def test_line_longer_than_its_range_belongs_to_the_range_it_starts_in() -> None:
    text = b"a" * 200_000 + b"\nb\n"
    file = io.BytesIO(text)
    assert read_lines_starting_in(file, 0, 10, len(text)) == text[:200_001]
    assert read_lines_starting_in(file, 10, 200_000, len(text)) == b""
    assert read_lines_starting_in(file, 200_000, len(text), len(text)) == b"b\n"


def test_file_that_is_gone_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.json was planned but is gone"):
        open_planned(str(tmp_path / "gone.json"), 1)


def test_file_that_shrank_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_bytes(b"12345")
    with pytest.raises(SourceError, match="had 6 bytes when it was planned and has 5 now"):
        open_planned(str(path), 6)


def compress(text: bytes, compression: str) -> bytes:
    return gzip.compress(text) if compression == "gzip" else pa.compress(text, "zstd", asbytes=True)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_lines_come_in_pieces_that_end_at_line_ends(compression: str) -> None:
    text = b"".join(b"%d some text to fill the line\n" % row for row in range(1_200_000))
    data = compress(text, compression)
    pieces = list(decompress_pieces(io.BytesIO(data), compression, len(data)))
    assert len(pieces) > 1
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(pieces) == text


def test_gzip_of_several_members_is_read_to_its_end() -> None:
    data = gzip.compress(b"a\n") + gzip.compress(b"b\n") + b"\0" * 8
    assert b"".join(decompress_pieces(io.BytesIO(data), "gzip", len(data))) == b"a\nb\n"


def test_zstd_of_several_frames_is_read_to_its_end() -> None:
    data = compress(b"a\n", "zstd") + compress(b"b\n", "zstd")
    assert b"".join(decompress_pieces(io.BytesIO(data), "zstd", len(data))) == b"a\nb\n"


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_bytes_that_were_appended_after_planning_are_not_read(compression: str) -> None:
    data = compress(b"a\n", compression)
    grown = data + compress(b"b\n", compression)
    assert list(decompress_pieces(io.BytesIO(grown), compression, len(data))) == [b"a\n"]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_damaged_file_gives_its_whole_lines_and_then_says_so(compression: str) -> None:
    import random

    chance = random.Random(0)
    text = b"".join(b"%d\n" % chance.getrandbits(64) for _ in range(300_000))
    data = compress(text, compression)[:-1000]
    recovered = b""
    with pytest.raises(CompressedDamage, match="ends early"):
        for piece in decompress_pieces(io.BytesIO(data), compression, len(data)):
            recovered += piece
    assert text.startswith(recovered)
    assert recovered.endswith(b"\n")
    assert len(recovered) > len(text) // 2
