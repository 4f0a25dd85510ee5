"""Tables of TPC-H, made by the generator ``tpchgen-cli``, which is installed into the cache on demand."""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from benchmarks.shared.registry import BenchError

TPCHGEN_VERSION = "4.0.0"
LINEITEMS_A_SCALE = 6_000_000
TABLES = ("lineitem", "supplier", "nation", "region")
# Orders have one to seven lines by chance: so many more are made that there are enough, and the rest is left out.
_SPARE = 1.02
_SPARE_ROWS = 1_000


def ensure_tables_for(lineitems: int, cache_dir: Path) -> Path:
    """Return the folder with tables that have at least so many lineitems."""
    # Suppliers are those of the scale factor that is told, or one in fifty more.
    return ensure_tables(round((_SPARE * lineitems + _SPARE_ROWS) / LINEITEMS_A_SCALE, 6), cache_dir)


def ensure_tables(scale_factor: float, cache_dir: Path) -> Path:
    """Return the folder with the tables as Parquet files, making them first when there are none."""
    folder = cache_dir / f"tpch-{TPCHGEN_VERSION}-sf{scale_factor:g}"
    if folder.is_dir():
        return folder
    program = _ensure_generator(cache_dir)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    options = ["--scale-factor", f"{scale_factor:g}", "--tables", ",".join(TABLES), "--output-dir", str(unfinished)]
    try:
        _run([str(program), "parquet", "--quiet", *options], "TPC-H's tables could not be made")
        # What bears the final name is complete; another process may have been faster.
        if not folder.is_dir():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _ensure_generator(cache_dir: Path) -> Path:
    folder = cache_dir / f"tpchgen-{TPCHGEN_VERSION}"
    program = folder / "bin" / "tpchgen-cli"
    if program.exists():
        return program
    cache_dir.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    package = f"tpchgen-cli=={TPCHGEN_VERSION}"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(unfinished), package]
    try:
        _run(install, f"{package}, which makes TPC-H's tables, could not be installed")
        if not program.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return program


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"{failure} (status {done.returncode}):\n{(done.stdout + done.stderr)[-1_500:]}"
        msg += "\nrun the bench without it: --only interval"
        raise BenchError(msg)
