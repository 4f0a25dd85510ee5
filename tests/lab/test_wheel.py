"""The wheel in an environment of its own: what it declares is enough to run flows, and nothing of the clone is used.

What the wheel needs is linked from the tests' environment, and no other package: the network is not asked, and what
only ``dev`` brings is not there. pip installs the wheel, and refuses if a package is missing or of a wrong version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import polars as pl
import pytest
import venv_pack
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from anabranch.lab.standalone import SPARK_HOME, list_loopback_hosts, standalone_cluster
from docs.documents import PROJECT, README, make_sample_readings, read_blocks
from quick_jvm import SPARK_ENVIRONMENT
from sharing import make_once

# The wheel is built and installed in 6 s; doctor and bench take 2 s, the README's flow, on a JVM of its own, 27 s.
SMALL = ("spark.executor.cores=1", "spark.executor.memory=768m", "spark.driver.memory=768m")
KEPT_VARIABLES = ("HOME", "JAVA_HOME", "LANG", "TMPDIR")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=PROJECT)

    (built,) = make_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of an environment in which the wheel is installed."""

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        (built,) = metadata.distributions(path=[str(wheel)])
        for distribution in find_needed(built):
            link_into(packages, distribution)
        python = str(folder / "bin" / "python")
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", str(wheel), cwd=folder)

    return make_once(tmp_path_factory, "installed", install) / "bin"


def find_needed(wheel: metadata.Distribution) -> list[metadata.Distribution]:
    """Return what a distribution needs to run, and what that needs in turn, as it is installed here."""
    needed: dict[str, metadata.Distribution] = {}
    asked: list[tuple[metadata.Distribution, set[str]]] = [(wheel, set())]
    while asked:
        distribution, extras = asked.pop()
        for requirement in map(Requirement, distribution.requires or ()):
            marker, name = requirement.marker, canonicalize_name(requirement.name)
            wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
            if wanted and name not in needed:
                needed[name] = metadata.distribution(name)
                asked.append((needed[name], requirement.extras))
    return list(needed.values())


def link_into(packages: Path, distribution: metadata.Distribution) -> None:
    """Let a folder of packages have a distribution that is installed elsewhere; its commands are left out."""
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        (packages / name).symlink_to(Path(str(distribution.locate_file(name))).resolve())


def run(*command: str, cwd: Path, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command that knows nothing of the tests' environment and ends with this status."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment |= {**SPARK_ENVIRONMENT, "SPARK_LOCAL_IP": "127.0.0.1", "PATH": os.environ["PATH"], **more}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"anabranch"}
    assert {Path(name).suffix for name in names if name.startswith("anabranch/")} == {".py", ".typed"}


def test_an_installed_package_finds_nothing_of_the_clone(commands: Path, tmp_path: Path) -> None:
    code = "import sys, anabranch; print(anabranch.__file__, *sys.path, sep='\\n')"
    package, *searched = run(str(commands / "python"), "-c", code, cwd=tmp_path).stdout.splitlines()
    assert Path(package).is_relative_to(commands.parent)
    assert [path for path in searched if path and Path(path).is_relative_to(PROJECT)] == []


def test_the_doctor_finds_all_that_flows_need(commands: Path, tmp_path: Path) -> None:
    said = run(str(commands / "anabranch"), "doctor", cwd=tmp_path).stdout
    assert "Flows can run here." in said
    assert "none; not installed: kafka, redis, postgres, mariadb, delta" in said


def test_the_command_says_in_a_line_where_benches_are(commands: Path, tmp_path: Path) -> None:
    for arguments in ([], ["planners"]):
        said = run(str(commands / "anabranch"), "bench", *arguments, cwd=tmp_path, status=1)
        assert said.stdout == ""
        (line,) = said.stderr.splitlines()
        assert "benches are not part of the installed package" in line and "clone" in line


def test_the_flow_of_the_readme_prints_what_the_readme_says(commands: Path, tmp_path: Path) -> None:
    make_sample_readings(tmp_path)
    flow = next(block for block in read_blocks(README) if block.language == "python")
    (tmp_path / "flow.py").write_text(flow.content, encoding="utf-8")
    assert flow.printed is not None
    assert run(str(commands / "python"), "flow.py", cwd=tmp_path).stdout.strip() == flow.printed.strip()


def test_spark_submit_ships_the_packed_environment_and_executors_use_it(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/deploy.md says: nobody but the archive has the wheel, and only its path is told to executors."""
    archive = venv_pack.pack(prefix=str(commands.parent), output=str(tmp_path / "environment.tar.gz"))
    run("mkdir", "environment", cwd=tmp_path)
    run("tar", "-xzf", archive, "-C", "environment", cwd=tmp_path)
    make_sample_readings(tmp_path)
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    # Executors have the environment of their workers: these must not know where the clone is.
    monkeypatch.delenv("PYTHONPATH", raising=False)
    places = [("--input", "readings"), ("--output", "alerts"), ("--checkpoint", "state")]
    arguments = [word for name, folder in places for word in (name, str(tmp_path / folder))]
    with standalone_cluster(cluster, list_loopback_hosts(2)) as master:
        script = str(PROJECT / "deploy" / "standalone" / "submit.sh")
        run(
            *(script, master, *arguments, "--trigger", "available-now", "--drain"),
            cwd=tmp_path,
            SPARK_SUBMIT=str(SPARK_HOME / "bin" / "spark-submit"),
            SPARK_SUBMIT_ARGS=" ".join(f"--conf {setting}" for setting in SMALL),
        )
    alerts = pl.read_parquet(tmp_path / "alerts" / "*.parquet")
    assert alerts.select("sensor", "readings", "lowest").rows() == [(1, 2, 206.25)]
    assert {path.parts[len(cluster.parts)] for path in cluster.glob("work-*/app-*/*/environment/bin/python")} == {
        "work-1",
        "work-2",
    }
