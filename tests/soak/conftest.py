"""Everything in this folder is a soak test: `make soak` runs it, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.fixtures import bench, spark

__all__ = ["bench", "spark"]

SOAK_FOLDER = Path(__file__).parent


# First, because pytest drops what `-m "not soak"` leaves out in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(SOAK_FOLDER):
            item.add_marker(pytest.mark.soak)
