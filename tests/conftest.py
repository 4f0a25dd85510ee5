"""Settings that all tests share."""

from __future__ import annotations

from folders import keep_in_memory
from property_tests import register_profiles

register_profiles()
keep_in_memory()

# Servers that tests share, started when the first of them asks.
pytest_plugins = ["servers.fixtures"]
