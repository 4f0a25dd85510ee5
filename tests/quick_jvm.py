"""How tests start their JVMs: short-lived, so what counts is how soon they are there."""

from __future__ import annotations

import os
from pathlib import Path

# The optimising compiler would cost more than it gives back.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def writes_archive(path: Path) -> str:
    """Return the options of a JVM that writes the classes it loaded into an archive when it ends."""
    return f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={path}"


def _uses_archive() -> str:
    """Return the options of a JVM that maps the archive which ``make test`` made; one that does not fit is not used."""
    archive = os.environ.get("ANABRANCH_CLASS_ARCHIVE", "")
    # Without a log: a JVM would print on its standard output that an archive does not fit.
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={archive} -Xlog:disable" if Path(archive).is_file() else _SHORT_LIVED


QUICK_JVM = _uses_archive()
SPARK_ENVIRONMENT = {"SPARK_SUBMIT_OPTS": QUICK_JVM}
"""The same for programs that make their own session: Spark's launcher hands the options to the driver's JVM."""
