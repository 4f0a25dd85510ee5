"""What Flink's job needs: its environment, the jars of its Parquet format, and files in an order that it keeps."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from benchmarks.joins.interval_input import ADS_A_CLICK
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
    """Return a folder with the rows of ads and clicks in one file a reader, side by side in event time.

    Flink's file source hands out files in no order, and holds back no source that runs ahead of another: rows of
    overtaken files would be late, and the smaller stream would be read and kept long before its time. So the rows lie
    as they would in a topic of both: four ads, a click, in turn for each of the readers.
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


def _list_pairs(folder: Path) -> list[tuple[Path, Path]]:
    return list(zip(list_files(folder / "ads"), list_files(folder / "clicks"), strict=True))


def _write_lines(folder: Path, lane: int, lanes: int, target: Path) -> None:
    with target.open("wb") as file:
        for some, others in _list_pairs(folder):
            ads, clicks = some.read_bytes().splitlines(keepends=True), others.read_bytes().splitlines(keepends=True)
            for number in range(lane, len(clicks), lanes):
                file.writelines(ads[number * ADS_A_CLICK : (number + 1) * ADS_A_CLICK])
                file.write(clicks[number])


def _write_row_groups(folder: Path, lane: int, lanes: int, target: Path) -> None:
    writer = None
    for some, others in _list_pairs(folder):
        ads, clicks = pl.read_parquet(some), pl.read_parquet(others)
        numbered = [
            ads.with_columns(turn=pl.int_range(pl.len()) // ADS_A_CLICK),
            clicks.with_columns(turn=pl.int_range(pl.len())),
        ]
        rows = pl.concat(numbered, how="diagonal").filter(pl.col("turn") % lanes == lane)
        table = rows.sort("turn", maintain_order=True).drop("turn").to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(target, table.schema, compression="snappy")
        writer.write_table(table)
    if writer is not None:
        writer.close()
