"""Sessions: a local one of our own, or a clone of the user's that leaves theirs as it is."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError, EngineError, FlowError

_SQL_SETTINGS = {
    # A slot is a partition: nothing may merge or split them behind our back.
    "spark.sql.adaptive.enabled": "false",
    # Blocks are megabytes each; Spark's default of 10,000 rows a batch would be gigabytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
_TASK_ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
    # A worker's next batch wants the memory of its last one: giving it back in between costs a page fault a page,
    # an eighth of the time of a batch of JSON. After ten idle seconds it is given back all the same.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
    # The same for arrays, which come from the C library: those up to 128 MB are taken from memory it keeps, at most
    # 256 MB more than are in use. With ten million keys that is a sixth of a batch's processor time.
    "MALLOC_MMAP_THRESHOLD_": str(128 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
_ENVIRONMENT_LOCK = threading.Lock()

_OURS = "spark.anabranch.local"
"""Marks a Spark that this library started."""

_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Rows never become rows of the JVM, so there is little in it that is worth being compiled twice: its second compiler
took a seventh of a short run's processor time from the tasks."""
_QUICK_COLLECTOR = "-XX:+UseParallelGC"
"""Blocks are large and short-lived: a collector with threads of its own beside the tasks takes cores from them."""
_JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def local_session(
    master: str | None = None, memory: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start (or find) a Spark session on this machine.

    ``master`` is Spark's, ``local[*]`` unless said; ``memory`` is that of the driver, such as ``4g``; ``config`` has
    Spark's own settings.

    The JVM only carries blocks here, so it compiles what it runs quickly, not thoroughly, and collects garbage in
    pauses. Where Spark's own sources and operators do much of the work, give
    ``{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}``.

    Examples:
        >>> spark = ab.local_session("local[2]", "1g")
        >>> spark.range(3).count()
        3
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("anabranch")
        .master(master or os.environ.get("ANABRANCH_MASTER", "local[*]"))
        .config("spark.driver.memory", memory or _driver_memory())
        # Spark puts the user's own options behind these.
        .config("spark.driver.defaultJavaOptions", choose_java_options(config or {}, os.environ))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.locality.wait", "3s")
        .config("spark.log.level", "ERROR")
        .config(_OURS, "true")
    )
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def choose_java_options(config: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the options of a local Spark's JVM: a quick compiler, and a quick collector unless somebody chose one.

    A JVM that is told of two collectors does not start, and people name theirs in many places.
    """
    folder = environment.get("SPARK_CONF_DIR") or Path(environment.get("SPARK_HOME") or _find_spark_home(), "conf")
    defaults = Path(folder, "spark-defaults.conf")
    told = [*config.values(), *(environment.get(name, "") for name in _JVM_VARIABLES)]
    if defaults.is_file():
        told.append(defaults.read_text(errors="replace"))
    chosen = any(_COLLECTOR.search(text) for text in told)
    return _QUICK_COMPILER if chosen else f"{_QUICK_COMPILER} {_QUICK_COLLECTOR}"


def flow_session(spark: SparkSession) -> SparkSession:
    """Return a session with the user's settings and tables, and SQL settings of our own."""
    refuse_connect(spark)
    clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for key, value in _SQL_SETTINGS.items():
        clone.conf.set(key, value)
    return clone


def refuse_connect(spark: object) -> None:
    """Raise ``EngineError`` for a Spark Connect session, ``FlowError`` for what is no session at all."""
    if type(spark).__name__ != "SparkSession":
        advice = f"spark=ab.local_session({spark!r})" if isinstance(spark, str) else "spark=SparkSession.builder…"
        msg = f"spark= takes a SparkSession, found {spark!r}; give {advice}, or leave it out for a local one"
        raise FlowError(msg)
    if type(spark).__module__.startswith("pyspark.sql.connect") or not hasattr(spark, "_jsparkSession"):
        msg = (
            "this is a Spark Connect session: its driver is another process, and the driver commits the batches; "
            'use a classic session, SparkSession.builder.master("local[*]") or your cluster\'s, without .remote()'
        )
        raise EngineError(msg)


@contextlib.contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make a session the thread's active one for a while: Spark looks some things up there, whatever it is given."""
    before = SparkSession.getActiveSession()
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before is not None:
            sessions.setActiveSession(before._jsparkSession)
        else:
            sessions.clearActiveSession()


def spare_traces(spark: SparkSession, query_name: str) -> Callable[[], None]:
    """Keep Spark from printing the stack of a query's end, and return what lets it again.

    Whoever runs the flow gets the reason as an error. Of a user's Spark, only what is said of this query is kept back;
    of one that we started, also what is said of failing tasks. And only where Spark logs with what it brings along.
    """
    jvm: Any = spark._jvm
    said = [rf"Query {re.escape(query_name)} \[.*terminated with error.*"]
    if spark.sparkContext.getConf().get(_OURS) is not None:
        said += [r"Exception in task .*", r".*Task \d+ in stage .* failed \d+ times; aborting job"]
    pattern = f"(?s)(?:{'|'.join(said)})"
    from_proxies = logging.getLogger("py4j.clientserver")
    from_proxies.addFilter(_is_not_ours)
    kept_back: Any = None
    # Another library may log for Spark; then its words are shown.
    with contextlib.suppress(Exception):
        log4j, results = jvm.org.apache.logging.log4j, jvm.org.apache.logging.log4j.core.Filter.Result
        kept_back = log4j.core.filter.RegexFilter.createFilter(pattern, None, False, results.DENY, results.NEUTRAL)
        root = log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
        root.addFilter(kept_back)

    def show_again() -> None:
        from_proxies.removeFilter(_is_not_ours)
        # The JVM may be gone by then.
        with contextlib.suppress(Exception):
            if kept_back is not None:
                root.removeFilter(kept_back)

    return show_again


def _is_not_ours(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], AnabranchError)


@contextlib.contextmanager
def task_environment(spark: SparkSession) -> Iterator[None]:
    """Give the Python workers of functions that are made here one thread each: Spark's tasks are the parallelism.

    Threads that warm executors up make functions while a batch does: one waits for the other. Whoever makes functions
    elsewhere meanwhile goes through a dictionary that nobody changes.
    """
    context = spark.sparkContext
    with _ENVIRONMENT_LOCK:
        before = context.environment
        context.environment = {**before, **_TASK_ENVIRONMENT}
        try:
            yield
        finally:
            context.environment = before


def runs_locally(spark: SparkSession) -> bool:
    """Say whether driver and only executor are one process."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def _driver_memory() -> str:
    # Python workers need room beside the JVM: a quarter of the machine for it, between 1 and 8 GB.
    gigabytes = psutil.virtual_memory().total // (4 << 30)
    return f"{min(8, max(1, gigabytes))}g"
