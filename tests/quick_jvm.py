"""How tests start their JVMs: short-lived, so what counts is how soon they are there."""

from __future__ import annotations

import os
from pathlib import Path

# The optimising compiler would cost more than it gives back.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SPARK_ARCHIVE, KAFKA_ARCHIVE = "ANABRANCH_CLASS_ARCHIVE", "ANABRANCH_KAFKA_CLASS_ARCHIVE"
"""Variables of the environment that name the archives which ``make test`` made."""


def writes_classes(path: Path) -> str:
    """Return the option of a JVM that writes the classes it loaded into an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={path}"


def maps_classes(variable: str) -> list[str]:
    """Return the options of a JVM that maps an archive, if there is one; one that does not fit is not used."""
    archive = os.environ.get(variable, "")
    # Without a log: a JVM would print on its standard output that an archive does not fit.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if Path(archive).is_file() else []


QUICK_JVM = " ".join([SHORT_LIVED, *maps_classes(SPARK_ARCHIVE)])
SPARK_ENVIRONMENT = {"SPARK_SUBMIT_OPTS": QUICK_JVM}
"""The same for programs that make their own session: Spark's launcher hands the options to the driver's JVM."""
