"""A folder with one flow in all its forms."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unit.query.flow_forms import CODE, PYTHON, XML, YAML


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the flow as YAML, XML and Python, and the module that it uses."""
    # What flow.py imports from beside it must not be found by the next test's flow.
    monkeypatch.delitem(sys.modules, "readings", raising=False)
    (tmp_path / "readings.py").write_text(CODE)
    (tmp_path / "flow.yaml").write_text(YAML)
    (tmp_path / "flow.xml").write_text(XML)
    (tmp_path / "flow.py").write_text(PYTHON)
    return tmp_path
