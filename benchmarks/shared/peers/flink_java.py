"""Flink jobs in Java: sources compiled against the jars of Flink's own environment, and how they are run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.shared.peers.flink import FLINK_VERSION, ensure_flink
from benchmarks.shared.registry import BenchError

# What Flink's own start scripts open on Java 17.
_OPENED_PACKAGES = (
    "lang",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
    "util.concurrent.locks",
)
# What jobs have in common: it is compiled together with each of them.
_COMMON_SOURCE = Path(__file__).parent / "MeasuredJob.java"
SETTINGS: Mapping[str, str] = {
    "execution.runtime-mode": "STREAMING",
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "3 s",
    "execution.checkpointing.storage": "filesystem",
    # A state of plain objects uses none of it.
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
}


def prepare_job(
    name: str, sources: Sequence[Path], main_class: str, cache_dir: Path, memory: str, connectors: Sequence[Path] = ()
) -> list[str]:
    """Return the command that runs a job, compiling it first when that was not done yet.

    ``connectors`` are folders with jars that the job needs besides Flink's own.
    """
    python = ensure_flink(cache_dir)
    flink = next(python.parent.parent.glob("lib/python*/site-packages/pyflink/lib"))
    java, javac = find_jdk(os.environ)
    jars = os.pathsep.join(f"{folder}/*" for folder in (flink, *connectors))
    classes = _compile(name, [*sources, _COMMON_SOURCE], javac, jars, cache_dir)
    return [
        str(java),
        f"-Xmx{memory}",
        # Faster here than G1, as for the other JVMs.
        "-XX:+UseParallelGC",
        *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
        "-classpath",
        f"{classes}{os.pathsep}{jars}",
        main_class,
    ]


def find_jdk(environment: Mapping[str, str]) -> tuple[Path, Path]:
    """Return java and javac of the same JDK: that of JAVA_HOME, else the one on the path."""
    home = environment.get("JAVA_HOME")
    if home:
        javac = Path(home) / "bin" / "javac"
        found = javac.exists()
    else:
        on_path = shutil.which("javac", path=environment.get("PATH"))
        javac, found = Path(on_path or "javac"), on_path is not None
    if not found:
        where = f"JAVA_HOME is {home}, a Java without a compiler" if home else "there is none on the path"
        msg = (
            f"Flink's job is compiled by javac, and {where}; install a JDK (Debian, Ubuntu: apt-get install"
            " openjdk-17-jdk-headless; Fedora: dnf install java-latest-openjdk-devel; macOS: brew install openjdk@17),"
            " or leave Flink out: --peers spark"
        )
        raise BenchError(msg)
    # A link on the path leads to the JDK, and java lies beside the javac that it leads to.
    javac = javac.resolve()
    return javac.with_name("java"), javac


def _compile(name: str, sources: Sequence[Path], javac: Path, jars: str, cache_dir: Path) -> Path:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = cache_dir / f"{name}-job-{FLINK_VERSION}-{digest}"
    if classes.exists():
        return classes
    unfinished = classes.with_name(f".{classes.name}.{uuid.uuid4().hex}")
    command = [str(javac), "-nowarn", "--release", "17", "-classpath", jars, "-d", str(unfinished)]
    try:
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            msg = f"{javac} could not compile Flink's job (status {done.returncode}):\n{done.stderr[-2_000:]}"
            raise BenchError(msg)
        unfinished.rename(classes)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return classes
