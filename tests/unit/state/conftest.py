from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.state import Checkpoint, Store, open_store


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Every behaviour holds on a local disk and on an object store."""
    return open_store(tmp_path / "checkpoint") if request.param == "local" else open_store(f"memory://{tmp_path}")


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "checkpoint")


@pytest.fixture
def checkpoint(store: Store) -> Checkpoint:
    return Checkpoint(store)
