"""Jars from Maven Central, or the mirror that Maven is told to use, kept in the user's cache folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import AnabranchError

_POMS = Path(__file__).parent / "kafka_jars"


class ServerMissing(AnabranchError):
    """A server's program cannot be had here; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class Jars:
    """The jars that a pom names, under a name of ours and the version that the pom asks for."""

    name: str
    pom: str
    version_property: str
    stand_ins: str = ""
    """A folder of Java sources for what the jars refer to and nobody needs here; compiled against Spark's own jars."""

    @property
    def folder(self) -> Path:
        """Where they lie once they were fetched."""
        found = re.search(rf"<{re.escape(self.version_property)}>(.*)</", (_POMS / self.pom).read_text())
        if found is None:
            msg = f"{_POMS / self.pom} names no {self.version_property}"
            raise ServerMissing(msg)
        return cache_folder() / f"{self.name}-{found[1]}"

    def find(self) -> Path:
        """Return their folder; raise ``ServerMissing`` if they were not fetched yet."""
        if not self.folder.is_dir():
            msg = (
                f"there is no {self.folder}: run scripts/ensure-kafka, which needs Java 17 and Maven (`make test` does)"
            )
            raise ServerMissing(msg)
        return self.folder

    def fetch(self) -> Path:
        """Return their folder; let Maven fill it first if need be."""
        folder = self.folder
        if folder.is_dir():
            return folder
        maven = shutil.which("mvn")
        if maven is None:
            msg = f"the jars of {self.name} come by Maven, which is not installed (Debian: apt-get install maven)"
            raise ServerMissing(msg)
        unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
        command = [maven, "-q", "-B", "-f", str(_POMS / self.pom), *goal]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0 or not any(unfinished.glob("*.jar")):
                msg = f"Maven could not fetch the jars of {self.name}:\n{(done.stdout + done.stderr)[-1_500:]}"
                raise ServerMissing(msg)
            if self.stand_ins:
                _compile_stand_ins(_POMS / self.stand_ins, unfinished)
            # What bears the final name is complete; another process may have been faster.
            if not folder.is_dir():
                unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return folder


BROKER = Jars("kafka", "pom.xml", "kafka.version")
SPARK_CONNECTOR = Jars("spark-kafka", "spark-connector.xml", "spark.version", "tokens")
S3_FILES = Jars("hadoop-aws", "hadoop-aws.xml", "hadoop.version")
FLINK_CONNECTOR = Jars("flink-kafka", "flink-connector.xml", "flink.kafka.version")
FLINK_PARQUET = Jars("flink-parquet", "flink-parquet.xml", "flink.version")


def _compile_stand_ins(sources: Path, folder: Path) -> None:
    """Leave a jar with the compiled sources in a folder."""
    import pyspark

    # A JAVA_HOME may have no compiler: it is enough to run Spark.
    own = Path(os.environ.get("JAVA_HOME", "/nowhere")) / "bin" / "javac"
    javac = str(own) if own.exists() else shutil.which("javac")
    if javac is None:
        msg = "there is no javac: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)"
        raise ServerMissing(msg)
    classes = folder / "classes"
    jars = Path(pyspark.__file__).parent / "jars"
    command = [javac, "-nowarn", "--release", "17", "-classpath", f"{jars}/*", "-d", str(classes)]
    done = subprocess.run(
        [*command, *map(str, sorted(sources.glob("*.java")))], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        msg = f"{javac} could not compile {sources}:\n{done.stderr[-1_500:]}"
        raise ServerMissing(msg)
    with zipfile.ZipFile(folder / f"{sources.name}.jar", "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))
    shutil.rmtree(classes)


def cache_folder() -> Path:
    """Return where jars are kept: that of ANABRANCH_CACHE, else the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("ANABRANCH_CACHE") or f"{home}/anabranch")


if __name__ == "__main__":
    # For scripts/ensure-kafka: fetch what the tests need.
    for wanted in (BROKER, SPARK_CONNECTOR, S3_FILES):
        print(f"{wanted.name}: {wanted.fetch()}")
