"""The JVM of a local Spark: what it is told, and what stays the user's choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.spark.session import choose_java_options

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"


def test_a_jvm_that_carries_blocks_compiles_and_collects_quickly() -> None:
    assert choose_java_options({}, {}) == QUICK
    assert (
        choose_java_options({"spark.driver.extraJavaOptions": "-Xss4m"}, {"JAVA_TOOL_OPTIONS": "-Dname=UseG1GC"})
        == QUICK
    )


@pytest.mark.parametrize("where", ["config", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS"])
def test_who_chose_a_collector_keeps_it(where: str) -> None:
    told = "-Xss4m -XX:+UseSerialGC"
    config = {"spark.driver.extraJavaOptions": told} if where == "config" else {}
    assert choose_java_options(config, {where: told}) == "-XX:TieredStopAtLevel=1"


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_a_collector_in_sparks_defaults_counts(tmp_path: Path, variable: str) -> None:
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    assert choose_java_options({}, {variable: str(tmp_path)}) == QUICK
    (folder / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions  -XX:+UseG1GC\n")
    assert choose_java_options({}, {variable: str(tmp_path)}) == "-XX:TieredStopAtLevel=1"
