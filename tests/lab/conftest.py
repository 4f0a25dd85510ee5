"""Everything here starts processes of its own; one undisturbed run is the measure for all disturbed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.drivers import finish, results, write_input
from sharing import make_once

LAB_FOLDER = Path(__file__).parent
FILES, ROWS, SEED = 12, 200, 7


# First, because pytest drops what `-m` leaves out in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(LAB_FOLDER):
            item.add_marker(pytest.mark.lab)
            # Every test here starts Spark several times; one of them eleven times.
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the flow writes on one slot when nobody kills anything."""

    def run(folder: Path) -> None:
        write_input(folder, FILES, ROWS, SEED)
        finish(folder, "--slots", "1")

    found = results(make_once(tmp_path_factory, "undisturbed", run))
    assert all(len(batches) > 3 for batches in found.values())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the same input as the undisturbed run's."""
    write_input(tmp_path, FILES, ROWS, SEED)
    return tmp_path
