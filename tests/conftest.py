"""Settings that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from folders import keep_in_memory
from property_tests import register_profiles

register_profiles()
keep_in_memory()

# Servers that tests share, started when the first of them asks.
pytest_plugins = ["servers.fixtures"]

SHARED_SESSION_FOLDERS = [Path(__file__).parent / name for name in ("docs", "spark")]


# First, because the runner takes note of the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests on one Spark where tests share a session; any process may run those that start their own."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in SHARED_SESSION_FOLDERS):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
