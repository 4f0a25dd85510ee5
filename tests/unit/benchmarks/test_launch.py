"""How peers are started: wherever that is, they find the benches, and no more than they need of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.shared import launch
from benchmarks.shared.launch import describe_environment


def test_what_peers_are_given_leads_to_the_benches_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    clone = str(Path(__file__).resolve().parents[3])
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert describe_environment()["PYTHONPATH"].split(os.pathsep) == [clone, "/elsewhere"]
    monkeypatch.delenv("PYTHONPATH")
    assert describe_environment()["PYTHONPATH"] == clone


def test_a_script_without_this_library_imports_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flink's environment has neither Anabranch nor what that needs; ``-S`` leaves installed packages out here, too."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    code = "import benchmarks.keyed_window.peers, benchmarks.skew.peers, sys; print('anabranch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={**os.environ, **describe_environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_scripts_of_peers_are_where_benches_look_for_them() -> None:
    benches = Path(launch.__file__).parents[1]
    named = {
        name for path in benches.rglob("*.py") for name in re.findall(r'"(\w+\.peers\.\w+)"', path.read_text("utf-8"))
    }
    assert {"migration.peers.ours", "migration.peers.native", "ysb.peers.ours"} <= named
    for name in named:
        assert launch.our_script(name)[-1] == f"benchmarks.{name}"
    with pytest.raises(ModuleNotFoundError, match=r"no script benchmarks\.migration\.peers\.theirs"):
        launch.our_script("migration.peers.theirs")
