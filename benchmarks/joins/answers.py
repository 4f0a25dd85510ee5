"""What a join must answer: DuckDB's word on all rows, and the comparison with what a system wrote, in any order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.joins.streams import (
    AFTER_MS,
    BEFORE_MS,
    BNCI,
    BNCI_WINDOWS,
    BY_TRUCK,
    CLOSE_MS,
    EQ5,
    EQ5_WINDOWS,
    INTERVAL,
    MOMENT,
    MUCH,
    NEAREST_MS,
    NEWEST_MS,
    STREAMS,
    list_results,
)
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import write_atomically

if TYPE_CHECKING:
    import duckdb

_NEAR_ORDERS = f"""
        (FROM lineitem WHERE {BY_TRUCK}) JOIN
        (SELECT l_orderkey AS l_orderkey_right, l_linenumber AS l_linenumber_right,
                l_quantity AS l_quantity_right{{more}}
         FROM lineitem WHERE {MUCH})
        ON l_orderkey_right BETWEEN l_orderkey - 1 AND l_orderkey + 1"""
_FROM = {
    INTERVAL: f"""ads JOIN clicks USING (ad) WHERE clicked - shown BETWEEN -{BEFORE_MS} AND {AFTER_MS}""",
    EQ5: """
        lineitem JOIN supplier ON l_suppkey = s_suppkey
        JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey""",
    EQ5_WINDOWS: f"""
        lineitem JOIN supplier ON l_suppkey = s_suppkey AND s_at - l_at BETWEEN -{NEAREST_MS[0]} AND {NEAREST_MS[1]}
        JOIN nation ON s_nationkey = n_nationkey AND n_at - s_at BETWEEN -{NEWEST_MS[0]} AND {NEWEST_MS[1]}
        JOIN region ON n_regionkey = r_regionkey AND r_at - n_at BETWEEN -{NEWEST_MS[0]} AND {NEWEST_MS[1]}""",
    BNCI: _NEAR_ORDERS.format(more=""),
    BNCI_WINDOWS: f"""{_NEAR_ORDERS.format(more=", l_at AS l_at_right")}
        AND l_at_right - l_at BETWEEN -{CLOSE_MS[0]} AND {CLOSE_MS[1]}""",
}
_WHOLE_ROW = "whole row"


@dataclass(frozen=True, slots=True)
class Digest:
    """Results in any order: how many there are, and the sums of the hashes of each column and of whole rows."""

    rows: int
    sums: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.rows}-{self.sums[_WHOLE_ROW]:x}"


def ask_oracle(query: str, folder: Path, file_format: str) -> Digest:
    """Return the digest of what DuckDB answers on the same files; it is kept beside them."""
    with _open_duckdb() as database:
        # Other versions may have other hashes.
        path = folder.with_name(f"{folder.name}-oracle-{_find_version(database)}.json")
        if not path.exists():
            found = _compute_digest(database, query, _select_wanted(query, folder, file_format))
            write_atomically(path, partial(_keep, found))
    kept = json.loads(path.read_text())
    return Digest(kept["rows"], kept["sums"])


def _keep(found: Digest, path: Path) -> None:
    path.write_text(json.dumps({"rows": found.rows, "sums": dict(found.sums)}))


def check_answer(query: str, output: Path, folder: Path, file_format: str) -> AnswerCheck:
    """Compare all results of a system with the oracle's: their number, and every column of theirs."""
    wanted = ask_oracle(query, folder, file_format)
    paths = list_results_files(output)
    if not paths:
        return AnswerCheck(wanted.rows == 0, 0, "", f"there are no results; {wanted.rows} are wanted")
    with _open_duckdb() as database:
        written = _select_written(query, paths)
        found = _compute_digest(database, query, written)
        if found == wanted:
            return AnswerCheck(True, found.rows, str(found))
        difference = _describe_difference(database, found, wanted, written, _select_wanted(query, folder, file_format))
    return AnswerCheck(False, found.rows, str(found), difference)


def list_results_files(output: Path) -> list[Path]:
    """Return the Parquet files that a system has committed; unfinished ones are hidden, or in hidden folders."""
    return sorted(
        path
        for path in output.rglob("*")
        if path.is_file()
        and (path.suffix == ".parquet" or path.name.startswith("part-"))
        and not any(part.startswith((".", "_")) for part in path.relative_to(output).parts)
    )


def _open_duckdb() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        msg = "the answers are checked with DuckDB, which is not installed; install it with: pip install 'duckdb>=1,<3'"
        raise BenchError(msg) from error
    return duckdb.connect()


def _find_version(database: duckdb.DuckDBPyConnection) -> str:
    (version,) = database.sql("SELECT version()").fetchall()[0]
    return str(version)


def _select_wanted(query: str, folder: Path, file_format: str) -> str:
    scans = ", ".join(f"{stream} AS ({_scan(query, stream, folder, file_format)})" for stream in STREAMS[query])
    columns = ", ".join(f'"{name}"' for name in list_results(query))
    return f"WITH {scans} SELECT {columns} FROM {_FROM[query]}"


def _scan(query: str, stream: str, folder: Path, file_format: str) -> str:
    files = f"'{folder / stream}/part-*'"
    if file_format == "parquet":
        return f"SELECT * FROM read_parquet({files})"
    kinds = ", ".join(
        f"'{name}': '{'BIGINT' if kind == MOMENT else kind}'" for name, kind in STREAMS[query][stream].items()
    )
    return f"SELECT * FROM read_json({files}, format = 'newline_delimited', columns = {{{kinds}}})"


def _select_written(query: str, paths: list[Path]) -> str:
    """Return the results of a system with moments as milliseconds, as the oracle has them."""
    columns = ", ".join(
        f'epoch_ms("{name}") AS "{name}"' if kind == MOMENT else f'"{name}"::{kind} AS "{name}"'
        for name, kind in list_results(query).items()
    )
    files = ", ".join(f"'{path}'" for path in paths)
    return f"SELECT {columns} FROM read_parquet([{files}])"


def _compute_digest(database: duckdb.DuckDBPyConnection, query: str, results: str) -> Digest:
    names = [f'"{name}"' for name in list_results(query)]
    hashed = [f"hash({name})" for name in (*names, ", ".join(names))]
    sums = ", ".join(f"coalesce(sum({one}), 0)" for one in hashed)
    rows, *found = database.sql(f"SELECT count(*), {sums} FROM ({results})").fetchall()[0]
    return Digest(int(rows), dict(zip([*list_results(query), _WHOLE_ROW], map(int, found), strict=True)))


def _describe_difference(
    database: duckdb.DuckDBPyConnection, found: Digest, wanted: Digest, written: str, expected: str
) -> str:
    """Say how many results there are, which columns differ, and one example."""
    columns = [name for name, total in wanted.sums.items() if found.sums[name] != total]
    told = f"{found.rows} results, {wanted.rows} are wanted; columns that differ: {', '.join(columns)}"
    for name, some, others in (("missing", expected, written), ("extra", written, expected)):
        first = database.sql(f"({some}) EXCEPT ALL ({others}) LIMIT 1").fetchall()
        if first:
            return f"{told}; a {name} one: {first[0]}"
    return told
