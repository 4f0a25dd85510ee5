"""Code of documents that runs flows does what they say, all on one Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from docs.documents import RUNNABLE, name_of, needs_spark, run_document


@pytest.mark.spark
@pytest.mark.parametrize("document", [each for each in RUNNABLE if needs_spark(each)], ids=name_of)
def test_code_runs_and_prints_what_the_document_says(
    document: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_document(document, tmp_path, monkeypatch)
