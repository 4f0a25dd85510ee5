"""What an application on a lab must say to Spark: as settings, as a file of them, and as variables."""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.lab.errors import LabError
from anabranch.lab.record import LabRecord
from anabranch.lab.standalone import name_settings

OUTSIDE = "outside"
"""Where programs run that are started on the machine itself, on no host."""

_OF_EVERY_LAB = {
    # Who is lost shows after half a minute, and not after two.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
    # Slots stay on the executors that they are anchored to.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "3s",
}


def list_settings(record: LabRecord, place: str = OUTSIDE) -> dict[str, str]:
    """Return the settings of an application whose driver runs on this host, or outside of all."""
    if record.master is None:
        msg = "the lab has no master yet"
        raise LabError(msg)
    address = record.gateway if place == OUTSIDE else record.place_of(place).address
    size = record.plan.worker_size
    settings = name_settings(record.master.url, address, size) | _OF_EVERY_LAB
    if record.plan.cpu is not None:
        # A JVM looks at the machine's cores, and would start more threads than its quota can carry.
        settings["spark.executor.extraJavaOptions"] = f"-XX:ActiveProcessorCount={size.cores}"
    return settings


def list_variables(record: LabRecord, place: str = OUTSIDE) -> dict[str, str]:
    """Return the environment in which PySpark, spark-submit and Anabranch find the lab by themselves."""
    settings = list_settings(record, place)
    return {
        "SPARK_CONF_DIR": str(_folder_of(record, place)),
        "SPARK_LOCAL_IP": settings["spark.driver.host"],
        "ANABRANCH_MASTER": settings["spark.master"],
        "PYSPARK_PYTHON": sys.executable,
    }


def write_settings(record: LabRecord, place: str) -> None:
    """Write the settings as the file that Spark reads before it starts."""
    folder = _folder_of(record, place)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in list_settings(record, place).items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")


def _folder_of(record: LabRecord, place: str) -> Path:
    return Path(record.folder) / f"conf-{place}"
