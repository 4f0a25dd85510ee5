"""Flink in an environment of its own, made on demand."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.shared.registry import BenchError

FLINK_VERSION = "2.3.0"
# apache-flink has wheels of its dependencies for these only.
_NEWEST_PYTHON = (3, 12)
_FALLBACK_PYTHON = "3.11"


def ensure_flink(cache_dir: Path) -> Path:
    """Return the Python of an environment that holds Flink, making it first when there is none."""
    folder = cache_dir / f"flink-{FLINK_VERSION}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists() and python.exists():
        return python
    # Half an environment is of no use, and environments cannot be renamed into place.
    shutil.rmtree(folder, ignore_errors=True)
    log_path = cache_dir / f"flink-{FLINK_VERSION}-install.log"
    cache_dir.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        for command in _install_commands(folder, python):
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
            if status != 0:
                tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-10:])
                msg = (
                    f"apache-flink=={FLINK_VERSION} could not be installed (status {status}); the end of {log_path}:\n"
                    f"{tail}\nrun the bench without it by naming other peers, for example: --peers spark"
                )
                raise BenchError(msg)
    ready.touch()
    return python


def _install_commands(folder: Path, python: Path) -> list[list[str]]:
    package = f"apache-flink=={FLINK_VERSION}"
    fits = sys.version_info[:2] <= _NEWEST_PYTHON
    uv = _find_uv()
    if uv is not None:
        interpreter = sys.executable if fits else _FALLBACK_PYTHON
        return [
            [uv, "venv", "--quiet", "--python", interpreter, str(folder)],
            [uv, "pip", "install", "--python", str(python), package],
        ]
    if not fits:
        newest = ".".join(str(part) for part in _NEWEST_PYTHON)
        msg = (
            f"Flink {FLINK_VERSION} needs Python {newest} or older, and this is {sys.version.split()[0]};"
            " install uv, which fetches one (pip install uv), or leave Flink out: --peers spark"
        )
        raise BenchError(msg)
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", package],
    ]


def _find_uv() -> str | None:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")
