"""Code of documents that runs flows does what they say, all on one Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from docs.documents import RUNNABLE, name_of, needs_spark, run_document
from docs.examples import Documented, everything_public


@pytest.mark.spark
@pytest.mark.parametrize("document", [each for each in RUNNABLE if needs_spark(each)], ids=name_of)
def test_code_runs_and_prints_what_the_document_says(
    document: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_document(document, tmp_path, monkeypatch)


@pytest.mark.spark
@pytest.mark.parametrize(
    "documented", [each for each in everything_public() if each.needs_spark], ids=lambda each: each.name
)
def test_examples_that_need_spark_run(
    documented: Documented, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documented.run()
