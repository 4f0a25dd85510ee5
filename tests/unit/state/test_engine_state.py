"""What the engine leaves in a manifest is read as it was written, by this version or an earlier one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import Home, KeptHomes, Pin
from anabranch.model.times import FollowedTimes
from anabranch.state import EngineState, Manifest
from unit.state.builders import manifest

KEPT = Path(__file__).parent.parent.parent / "kept"
SAMPLES = sorted(KEPT.glob("*.tar.gz"))

names = st.text(max_size=5)
times_us = st.integers(-(2**62), 2**62)
plain = st.dictionaries(names, st.lists(times_us) | st.text() | st.none())
slot_ids = st.tuples(st.integers(1, 3), st.integers(0, 99))
homes = st.builds(
    KeptHomes,
    application=names,
    homes=st.dictionaries(slot_ids, st.builds(Home, names, names)),
    pins=st.dictionaries(slot_ids, st.builds(Pin, st.none() | names, names)),
)
states = st.builds(
    EngineState,
    slots=st.integers(0, 10_000),
    next_due_us=st.dictionaries(names, st.none() | times_us),
    clocks=st.dictionaries(names, plain),
    now_us=times_us,
    wake_us=st.none() | times_us,
    partition_keys=st.dictionaries(names, plain),
    exchanges=st.dictionaries(names, st.sampled_from(["plain", "merged", "held"])),
    followed=st.lists(st.builds(FollowedTimes, names, st.frozensets(st.integers(0, 9)))).map(tuple),
    homes=homes,
    unknown=st.dictionaries(st.sampled_from(["tick", "colours"]), plain),
)


@given(states)
def test_what_is_written_is_read(state: EngineState) -> None:
    assert EngineState.from_json(json.loads(json.dumps(state.to_json()))) == state


@given(states)
def test_a_manifest_has_it_as_it_is(state: EngineState) -> None:
    committed = manifest(3, engine=state)
    assert Manifest.decode(committed.encode(), "commits/3") == committed


def engines_of(sample: Path) -> list[dict[str, Any]]:
    with tarfile.open(sample) as packed:
        commits = [member for member in packed if "/commits/0" in member.name and member.name.endswith(".json")]
        return [json.load(packed.extractfile(member))["manifest"]["engine"] for member in commits]  # type: ignore[arg-type]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_manifests_of_earlier_versions_are_written_as_they_were(sample: Path) -> None:
    engines = engines_of(sample)
    assert engines
    for engine in engines:
        assert json.dumps(EngineState.from_json(engine).to_json()) == json.dumps(engine)


def test_what_another_version_says_stays() -> None:
    state = EngineState.from_json({"tick": 3})
    assert state.slots == 0
    assert state.to_json() == {"tick": 3}


def test_who_has_no_homes_says_nothing_of_them() -> None:
    assert "homes" not in EngineState(slots=2).to_json()
