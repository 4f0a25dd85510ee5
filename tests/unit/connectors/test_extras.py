"""Packages that only some connectors need."""

from __future__ import annotations

import json

import pytest

from anabranch.connectors.extras import import_extra
from anabranch.errors import SinkError


def test_a_package_that_is_there_is_imported() -> None:
    assert import_extra("json", "extra", "JSON needs its package", SinkError) is json


def test_a_package_that_is_missing_is_said_with_how_to_install_it() -> None:
    with pytest.raises(SinkError, match=r"^Sand needs its driver: pip install 'anabranch\[sand\]'$"):
        import_extra("no_such_driver", "sand", "Sand needs its driver", SinkError)
