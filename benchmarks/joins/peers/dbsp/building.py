"""Build the program on ``dbsp`` with cargo, in the cache, from the sources beside this file."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from benchmarks.shared.launch import CORES
from benchmarks.shared.registry import BenchError

_SOURCES = Path(__file__).parent
_WITHOUT = "run the bench without it by naming other peers, for example: --peers flink,spark"


class AbsentPeerError(BenchError):
    """There is no ``dbsp`` to compare with: cargo is missing, or it cannot build the program."""


def find_version() -> str:
    """Return the version of the crate that the program is built with."""
    manifest = tomllib.loads((_SOURCES / "Cargo.toml").read_text())
    return str(manifest["dependencies"]["dbsp"]).removeprefix("=")


def prepare_command(cache_dir: Path) -> list[str]:
    """Return the command that runs the program, building it first: many minutes for the first time.

    Raise ``AbsentPeerError`` where there is no cargo, or where it fails.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        msg = f"dbsp is a crate, and there is no cargo to build it with; install Rust, or {_WITHOUT}"
        raise AbsentPeerError(msg)
    folder = cache_dir / f"dbsp-{find_version()}"
    # What is compiled of other crates stays when the sources change, and so does the lock, which names a registry.
    _copy_sources(folder)
    log_path = cache_dir / f"{folder.name}-build.log"
    with log_path.open("wb") as log:
        command = [cargo, "build", "--release", "--jobs", str(CORES)]
        status = subprocess.run(
            command, cwd=folder, env=_find_environment(folder), stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode
    if status != 0:
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-10:])
        msg = f"dbsp {find_version()} could not be built (status {status}); the end of {log_path}:\n{tail}\n{_WITHOUT}"
        raise AbsentPeerError(msg)
    return [str(folder / "target" / "release" / "anabranch-dbsp-peer")]


def _copy_sources(folder: Path) -> None:
    """Bring the sources up to date; files that are the same are left alone, or cargo would build them again."""
    for source in (_SOURCES / "Cargo.toml", *sorted((_SOURCES / "src").glob("*.rs"))):
        target = folder / source.relative_to(_SOURCES)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)


def _find_environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
