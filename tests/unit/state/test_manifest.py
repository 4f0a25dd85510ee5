from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import RunRef, StagedFile
from anabranch.model.exchanges import ReaderBuffer
from anabranch.state import FORMAT_VERSION, EngineState, LevelState, Manifest
from unit.state.builders import manifest

DATA = Path(__file__).parent / "data"
FORMAT_1, FORMAT_2, FORMAT_3 = (DATA / f"manifest-format-{version}.json" for version in (1, 2, 3))
"""Manifests as releases wrote them. They are never written again: what they say must stay readable."""

FULL = Manifest(
    flow="low-voltage",
    flow_structure={"operators": [{"kind": "aggregate", "keys": {"sensor": "Int64"}}]},
    batch=17,
    epoch=2,
    query_id="6f2c9e0a-1111-2222-3333-444455556666",
    start_offset={"entry": 16},
    end_offset={"entry": 17},
    levels=(
        LevelState(
            operator="aggregate-1",
            routes={
                "base": {"kind": "buckets", "slots": 2, "slot_of": [0, 1, 0, 1]},
                "table": {"keys": [], "slots": [], "shares": []},
                "splitter": None,
            },
            runs=(
                (
                    RunRef("state/0/0/a.arrow", 100, 4096, "crc32:0000abcd", 15, 40, 10_000_000, 30_000_000),
                    RunRef(
                        file="state/0/0/b.arrow",
                        rows=7,
                        bytes=512,
                        checksum="crc32:00000001",
                        batch=17,
                        made_from=(RunRef("state/0/0/c.arrow", 3, 256, "crc32:00000002", 16, first_live=1),),
                    ),
                ),
                (),
            ),
        ),
    ),
    watermarks={"source-0": 25_000_000, "closed": None},
    sinks={0: (StagedFile("results/0/d.parquet", 5, 999, 1, {"columns": 3}),), -1: ()},
    totals={"rows_in": 12345, "batch_seconds": 1.5},
    problems=("readings/a.json grew after it was read",),
    created_at=1_700_000_000.25,
    engine=EngineState.from_json({"tick": 3}),
)


def test_what_is_encoded_is_decoded() -> None:
    assert Manifest.decode(FULL.encode(), "commits/17") == FULL


HANDED = replace(
    FULL,
    levels=(
        replace(
            FULL.levels[0],
            routes={
                "base": {"kind": "buckets", "slots": 2, "slot_of": [0, 1, 0, 1]},
                "table": {"keys": ["00000000000000ff"], "slots": [1], "shares": [1.0]},
                "splitter": None,
            },
            runs=(
                (
                    RunRef(
                        "state/0/0/a.arrow", 100, 4096, "crc32:0000abcd", 15, 40, gone=((255, 255), (2**63, 2**64 - 1))
                    ),
                ),
                (),
            ),
            handoffs=((), (RunRef("state/0/0/h.arrow", 2, 99, "crc32:00000003", 17),)),
        ),
    ),
)

HELD = replace(
    HANDED,
    reader_buffers={
        "aggregate-1": (
            ReaderBuffer(
                1,
                (RunRef("state/0/lanes/1/l.arrow", 4, 77, "crc32:00000004", 17, 0, 10_000_000, 20_000_000),),
                rows=40,
                since_us=1_700_000_000_000_000,
            ),
        )
    },
)


def test_a_manifest_of_format_1_is_read() -> None:
    assert Manifest.decode(FORMAT_1.read_bytes(), FORMAT_1.name) == FULL


def test_a_manifest_of_format_2_is_read() -> None:
    assert Manifest.decode(FORMAT_2.read_bytes(), FORMAT_2.name) == HANDED


def test_a_manifest_of_format_3_is_read() -> None:
    assert Manifest.decode(FORMAT_3.read_bytes(), FORMAT_3.name) == HELD


def test_format_3_is_still_written_the_same() -> None:
    """A change of the text needs a new format version, and a golden file beside these."""
    assert FORMAT_VERSION == 3
    assert HELD.encode() == FORMAT_3.read_bytes()


def test_what_readers_hold_back_is_among_the_files_of_a_batch() -> None:
    held = HELD.reader_buffers["aggregate-1"][0].runs[0]
    assert held in list(HELD.files())
    assert HELD.state_rows == HANDED.state_rows + 4
    assert HELD.state_bytes == HANDED.state_bytes + 77


@pytest.mark.parametrize(
    ("version", "advice"), [(4, "install a newer anabranch"), (0, "new checkpoint"), (None, "new")]
)
def test_another_format_is_refused_by_its_version(version: int | None, advice: str) -> None:
    document = json.loads(FULL.encode())
    document["manifest"]["format_version"] = version
    content = json.dumps(document).encode()
    expected = rf"commits/17 has checkpoint format {version}.*reads format 1 to 3.*{advice}"
    with pytest.raises(CheckpointError, match=expected):
        Manifest.decode(content, "commits/17")


def test_a_changed_character_is_found() -> None:
    content = FULL.encode().replace(b"12345", b"12346")
    with pytest.raises(StateDamaged, match="commits/17 has checksum"):
        Manifest.decode(content, "commits/17")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"null", b'{"checksum": "x", "manifest": []}', b"\xff"])
def test_what_is_no_manifest_is_called_unreadable(content: bytes) -> None:
    with pytest.raises(StateDamaged, match="commits/17 cannot be read"):
        Manifest.decode(content, "commits/17")


def test_every_cut_of_the_text_is_found() -> None:
    content = FULL.encode()
    for length in range(0, len(content), 101):
        with pytest.raises(StateDamaged):
            Manifest.decode(content[:length], "commits/17")


def test_files_include_what_could_rebuild_them() -> None:
    assert [ref.file[-7:] for ref in FULL.files()] == ["a.arrow", "b.arrow", "c.arrow"]


def test_sources_of_old_runs_are_forgotten() -> None:
    assert FULL.without_sources_before(17) == FULL
    assert [ref.file[-7:] for ref in FULL.without_sources_before(18).files()] == ["a.arrow", "b.arrow"]


def test_a_level_counts_live_rows_and_bytes() -> None:
    assert (FULL.levels[0].live_rows, FULL.levels[0].state_bytes) == (67, 4608)
    assert manifest(0).levels[0].live_rows == 0
