"""What Flink's job needs: its environment, the jars of its Parquet format, and files in an order that it keeps."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from benchmarks.servers.jars import FLINK_PARQUET
from benchmarks.shared.peers.flink import ensure_flink
from benchmarks.shared.workload import list_files, write_atomically

_SCRIPT = Path(__file__).parent / "flink_job.py"


def prepare_command(cache_dir: Path) -> list[str]:
    """Return the command that runs the job, installing what it needs first."""
    import pyspark

    python = ensure_flink(cache_dir)
    # The format refers to Hadoop's classes, which lie beside Spark anyway.
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    jars = sorted([*FLINK_PARQUET.fetch().glob("*.jar"), *hadoop])
    return [str(python), str(_SCRIPT), "--jars", ",".join(str(jar) for jar in jars)]


def write_lanes(folder: Path, lanes: int) -> Path:
    """Return a folder with the rows of all streams in one file a reader, side by side in event time.

    Flink's file source hands out files in no order, and holds back no source that runs ahead of another: rows of
    overtaken files would be late, and smaller streams would be read and kept long before their time. So the rows lie
    as they would in a topic of all streams, in turn for each of the readers.
    """
    file_format = folder.name
    target = folder.with_name(f"{file_format}-lanes{lanes}")
    target.mkdir(exist_ok=True)
    write = _write_lines if file_format == "json" else _write_row_groups
    for lane in range(lanes):
        path = target / f"part-{lane}.{file_format}"
        if not path.exists():
            write_atomically(path, partial(write, folder, lane, lanes))
    return target


def _list_turns(folder: Path) -> list[tuple[Path, ...]]:
    """Return the files that go along in event time: one of each stream."""
    streams = sorted(path for path in folder.iterdir() if path.is_dir())
    return list(zip(*map(list_files, streams), strict=True))


def _write_lines(folder: Path, lane: int, lanes: int, target: Path) -> None:
    with target.open("wb") as file:
        for paths in _list_turns(folder):
            lines = [pl.DataFrame({"line": path.read_bytes().splitlines(keepends=True)}) for path in paths]
            file.writelines(_deal(lines, lane, lanes).get_column("line"))


def _write_row_groups(folder: Path, lane: int, lanes: int, target: Path) -> None:
    writer = None
    for paths in _list_turns(folder):
        rows = _deal([pl.read_parquet(path) for path in paths], lane, lanes)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(target, table.schema, compression="snappy")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _deal(streams: list[pl.DataFrame], lane: int, lanes: int) -> pl.DataFrame:
    """Return a reader's share of rows, which lie in each stream by time."""
    timed = [rows.with_columns(__turn=pl.int_range(pl.len()) / pl.len()) for rows in streams]
    rows = pl.concat(timed, how="diagonal").sort("__turn", maintain_order=True)
    return rows.drop("__turn").gather_every(lanes, lane)
