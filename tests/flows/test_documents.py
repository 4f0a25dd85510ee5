"""Code of documents that runs flows does what they say; those that must be on Spark are in tests/docs."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from docs.documents import RUNNABLE, name_of, needs_spark, run_document, run_here, runs_flows


@pytest.mark.parametrize(
    "document", [each for each in RUNNABLE if runs_flows(each) and not needs_spark(each)], ids=name_of
)
def test_code_runs_and_prints_what_the_document_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ab.Flow, "run", run_here)
    run_document(document, tmp_path, monkeypatch)
