"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")

# Servers that tests share, started when the first of them asks.
pytest_plugins = ["servers.fixtures"]
