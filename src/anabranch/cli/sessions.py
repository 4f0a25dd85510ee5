"""The Spark session of a command: local unless said otherwise, and silent."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a user may say about Spark on the command line."""

    master: str | None = None
    memory: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    """Let Spark's own output through to the terminal."""
    debug: bool = False
    """Keep it in any case of an error, also of one that has nothing to do with Spark."""


@contextlib.contextmanager
def open_session(options: SessionOptions) -> Iterator[SparkSession]:
    """Start Spark and stop it at the end.

    What the JVM and the Python workers print goes into a file, which is kept and named when the engine fails: an error
    that is the flow's own says itself what is wrong.
    """
    _stay_on_loopback(options.master)
    log: Path | None = None
    if not options.verbose:
        descriptor, name = tempfile.mkstemp(prefix="anabranch-spark-", suffix=".log")
        os.close(descriptor)
        log = Path(name)
    try:
        spark = _start(options, log)
        try:
            yield spark
        except KeyboardInterrupt:
            # Whoever is in such a hurry does not want to wait for the running batch, as stopping Spark does.
            raise
        except BaseException:
            spark.stop()
            raise
        spark.stop()
    except Exception as error:
        of_the_flow = isinstance(error, AnabranchError) and not isinstance(error, EngineError)
        if log is not None and log.stat().st_size > 0 and (options.debug or not of_the_flow):
            error.add_note(f"Spark's own output: {log}")
            log = None
        raise
    finally:
        if log is not None:
            log.unlink(missing_ok=True)


@contextlib.contextmanager
def children_write_into(path: Path | None) -> Iterator[None]:
    """Send what processes that are started here print, all their life long, into a file; None changes nothing."""
    if path is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    with path.open("ab") as log:
        for descriptor in kept:
            os.dup2(log.fileno(), descriptor)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)


def read_config(pairs: list[str]) -> dict[str, str]:
    """Return ``key=value`` texts as a mapping; raise ``ValueError`` naming one that is not of this form."""
    config = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            msg = f"{pair!r} is no Spark setting; write it as spark.some.key=value"
            raise ValueError(msg)
        config[key.strip()] = value.strip()
    return config


def _start(options: SessionOptions, log: Path | None) -> SparkSession:
    level = {"spark.log.level": "WARN"} if options.verbose else {}
    with children_write_into(log):
        from anabranch.spark.session import local_session

        try:
            return local_session(options.master, options.memory, {**level, **options.config})
        except Exception as error:
            # PySpark says only that the gateway exited; why stands in the JVM's output.
            last_words = _last_lines(log) if log is not None else ""
            detail = f": {last_words}" if last_words else ""
            msg = f"Spark did not start ({error}){detail}; `anabranch doctor` checks what it needs"
            raise EngineError(msg) from error


def _last_lines(log: Path, most: int = 3) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-most:])


def _stay_on_loopback(master: str | None) -> None:
    # A local Spark talks to nobody else, and a host name that resolves to nothing would stop it.
    if (master or os.environ.get("ANABRANCH_MASTER", "local")).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
