from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.state import Checkpoint, Store, open_store
from unit.state.builders import write_logs


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Every behaviour holds on a local disk and on an object store."""
    opened = open_store(tmp_path / "checkpoint" if request.param == "local" else f"memory://{tmp_path}")
    write_logs(opened, range(20))
    return opened


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "checkpoint")
    write_logs(opened, range(20))
    return opened


@pytest.fixture
def checkpoint(store: Store) -> Checkpoint:
    return Checkpoint(store)
