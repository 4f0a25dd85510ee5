"""Spark's own Kafka connector as a source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flows.kafka_readings import send
from quick_jvm import SPARK_ENVIRONMENT
from servers.kafka import KafkaBroker, ServerMissing, connector_jars
from servers.programs import skip_or_fail

_NATIVE = """
import sys, pathlib
import anabranch as ab
import polars as pl

servers, topic, jars, folder = sys.argv[1:]
spark = ab.local_session("local[2]", "1g", {"spark.jars": jars, "spark.sql.shuffle.partitions": "2"})
stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 30)
    .load()
    .selectExpr("CAST(value AS STRING) AS text", "partition", "offset")
)
for _ in range(2):
    flow = ab.Flow("native")
    flow.read(ab.from_spark(stream)).key_by("partition").agg(rows=ab.count(), last=ab.max("offset")).write(
        ab.parquet(folder + "/out")
    )
    flow.run(folder + "/checkpoint", spark=spark, trigger="available-now", slots=2)
rows = pl.read_parquet(folder + "/out/*.parquet")
print("GOT", sorted(rows.group_by("partition").agg(pl.col("rows").max(), pl.col("last").max()).rows()))
spark.stop()
"""


def test_spark_s_own_connector_keeps_working_as_a_source(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = "native-readings"
    kafka.create_topic(topic, 3)
    try:
        jars = ",".join(str(jar) for jar in sorted(connector_jars().glob("*.jar")))
    except ServerMissing as missing:
        skip_or_fail(missing)
    send(kafka, topic, range(0, 25))
    # Jars must be there when a session starts: this one has a process of its own.
    outcome = subprocess.run(
        [sys.executable, "-c", _NATIVE, kafka.servers, topic, jars, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **SPARK_ENVIRONMENT, "PYSPARK_PYTHON": sys.executable},
    )
    assert "GOT [(0, 25, 24), (1, 25, 24), (2, 25, 24)]" in outcome.stdout, outcome.stdout + outcome.stderr[-3000:]
