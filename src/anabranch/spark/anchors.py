"""Pin slots to executors with an RDD of preferred locations that a cogroup brings together with the blocks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

REQUIRED_SETTINGS = {"spark.shuffle.reduceLocality.enabled": "false"}
"""Context settings without which Spark may run a slot elsewhere: the answers stay right, but state travels."""

logger = logging.getLogger("anabranch")


def name_location(executor: str, host: str) -> str:
    """Return how Spark is told of an executor as a place to prefer."""
    return f"executor_{host}_{executor}"


def missing_settings(spark: SparkSession) -> list[str]:
    """Return the settings that anchors need and the context lacks, as a person would write them."""
    found = spark.sparkContext.getConf()
    return [f"{key}={value}" for key, value in REQUIRED_SETTINGS.items() if found.get(key, "") != value]


def warn_of_missing_settings(spark: SparkSession) -> None:
    """Say which settings the context lacks, and what that costs."""
    for setting in missing_settings(spark):
        logger.warning(
            "the Spark context lacks %s: slots may run away from the executors they are pinned to; "
            "answers stay right, but state is read from the checkpoint again",
            setting,
        )


def anchor_frame(
    spark: SparkSession, locations: Sequence[str | None], fallbacks: Sequence[Sequence[str]] = ()
) -> DataFrame:
    """Return a DataFrame of one row a slot, partitioned by slot; each prefers its location, or none.

    ``fallbacks`` are by slot the hosts that it prefers next, where its executor is gone or has no core free for longer
    than ``spark.locality.wait``: Spark prefers an executor to a host.

    Its plan says that it is partitioned as ``repartitionById(slots, "slot")`` would: a cogroup with blocks that were
    really exchanged so adds no exchange, and Spark asks this side where the task should run.
    """
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    slots = len(locations)
    template = spark.range(slots).selectExpr("cast(id as int) as slot").repartitionById(slots, "slot")
    rows = jvm.java.util.ArrayList()
    for slot, location in enumerate(locations):
        preferred = jvm.java.util.ArrayList()
        if location is not None:
            preferred.append(location)
            for host in fallbacks[slot] if fallbacks else ():
                preferred.append(host)
        cells = gateway.new_array(jvm.java.lang.Object, 1)
        cells[0] = slot
        row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(cells)
        rows.append(jvm.scala.Tuple2(row, converters.asScala(preferred).toSeq()))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow"))
    rdd = spark.sparkContext._jsc.sc().makeRDD(converters.asScala(rows).toSeq(), tag)
    logical = getattr(getattr(jvm.org.apache.spark.sql.execution, "LogicalRDD$"), "MODULE$")
    plan = logical.fromDataset(rdd, template._jdf, False, False)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
