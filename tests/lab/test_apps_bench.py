"""The applications bench as a whole, small, in processes of its own."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.apps.bench import run
from benchmarks.apps.figures import READ
from benchmarks.apps.rules import VAULT
from benchmarks.shared.figures import OURS
from benchmarks.shared.registry import BenchOptions
from quick_jvm import SPARK_ENVIRONMENT


def test_an_application_answers_as_the_oracle_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SPARK_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    options = BenchOptions(
        # Ten seconds of event time: enough windows for levels to change.
        rows=2_000_000,
        keys=200,
        peers=(),
        cache_dir=tmp_path / "cache",
        json_path=tmp_path / "figures.json",
        out_dir=tmp_path / "out",
    )
    text = StringIO()
    report = run(options, Console(file=text, width=120), apps=(VAULT,), rounds=1)
    assert report.answers_equal, text.getvalue()
    (only,) = report.systems
    assert (only.input_name, only.system) == (VAULT, OURS)
    assert only.answer.rows > 10, "an answer without rows would be equal to any other"
    assert [(part.system, part.part) for part in report.parts] == [(OURS, READ)]
    assert json.loads((tmp_path / "figures.json").read_text())["figures"]["answers_equal"] == 1
    assert (tmp_path / "out" / "apps.svg").exists()
