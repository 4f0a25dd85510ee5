"""Damage one file of a checkpoint, start the flow again, and follow the advice of its error."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.state import Checkpoint, Owner, open_store
from anabranch.state.rollback import roll_back

Damage = Literal["removed", "cut", "flipped", "emptied"]
DAMAGES: tuple[Damage, ...] = ("removed", "cut", "flipped", "emptied")

SCHEMA = {"key": pl.Int64(), "ts": pl.Datetime("us"), "value": pl.Int64()}
FILES = 6
READ_BEFORE = 4
"""So many batches, of a file each, are committed when the damage is done; the others are read afterwards."""
KEPT_BATCHES = 3

_ADVICE = re.compile(r"rollback --to (\d+)")


@dataclass(frozen=True, slots=True)
class DamagedFlow:
    """A flow of windows and running totals in a folder of its own: inputs, results and checkpoint."""

    folder: Path
    spark: SparkSession

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def begin(self) -> None:
        """Commit the first batches, each by a driver of its own or not, as it comes."""
        for number in range(READ_BEFORE):
            self._write_input(number)
            self._run(drain=False)

    def finish(self) -> None:
        """Read what is left, and drain."""
        for number in range(READ_BEFORE, FILES):
            self._write_input(number)
        self._run(drain=True)

    def results(self) -> dict[str, list[tuple[int, ...]]]:
        """Return what was published: all windows, and the last total of every key."""
        windows = _read(self.folder / "windows").select("key", pl.col("window_start").cast(pl.Int64), "total")
        totals = _read(self.folder / "totals").group_by("key").agg(pl.col("rows").max())
        return {"windows": sorted(windows.rows()), "totals": sorted(totals.rows())}

    def files(self) -> list[str]:
        """Return the files of the checkpoint, by their names in it."""
        return sorted(str(path.relative_to(self.checkpoint)) for path in self.checkpoint.rglob("*") if path.is_file())

    def damage(self, file: str, how: Damage, seed: int = 0) -> bytes:
        """Damage a file and return what it held."""
        path = self.checkpoint / file
        held = path.read_bytes()
        if how == "removed":
            path.unlink()
        elif how == "cut":
            path.write_bytes(held[: len(held) // 2])
        elif how == "emptied":
            path.write_bytes(b"")
        else:
            flipped = bytearray(held or b"x")
            flipped[random.Random(f"{file} {seed}").randrange(len(flipped))] ^= 0x15
            path.write_bytes(bytes(flipped))
        return held

    def finish_by_advice(self, file: str, held: bytes) -> str:
        """Finish the flow; if it is refused, do what the error says, and finish it then. Return what it took."""
        try:
            self.finish()
        except AnabranchError as error:
            text = str(error)
        else:
            return "went on"
        advised = _ADVICE.search(text)
        if advised is None:
            # One process is both drivers here: without its word that it let go, the first still seems to run.
            assert re.search(r"restore|backup|copy|takeover", text), f"{file}: no advice in {text!r}"
            (self.checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
            (self.checkpoint / file).write_bytes(held)
            self.finish()
            return "restored"
        to = int(advised[1])
        roll_back(Checkpoint(open_store(self.checkpoint), KEPT_BATCHES), to, Owner.this_process(), time.time)
        for sink in self._flow().sinks:
            sink.retract(to)
        self.finish()
        return "rolled back"

    def copy(self, folder: Path) -> DamagedFlow:
        """Return the same in another folder; its inputs stay where they are."""
        shutil.copytree(self.folder, folder)
        return DamagedFlow(folder, self.spark)

    def _write_input(self, number: int) -> None:
        rows = [
            {"key": place % 5, "ts": f"2026-01-01T00:00:{number * 7 + place % 6:02d}", "value": number * 100 + place}
            for place in range(30)
        ]
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        (self.folder / "in" / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def _flow(self) -> ab.Flow:
        flow = ab.Flow("damaged")
        rows = flow.read(ab.files(str(self.folder / "in"), schema=SCHEMA, max_files=1), formerly="in").watermark("ts")
        keyed = rows.key_by("key")
        keyed.window("5s").agg(total=ab.sum("value"), name="windows").write(ab.parquet(self.folder / "windows"))
        keyed.agg(rows=ab.count(), name="totals").write(ab.parquet(self.folder / "totals"))
        return flow

    def _run(self, *, drain: bool) -> None:
        self._flow().run(
            str(self.checkpoint),
            spark=self.spark,
            trigger="available-now",
            drain=drain,
            slots=2,
            buckets=16,
            kept_batches=KEPT_BATCHES,
            job_attempts=1,
        )


def _read(folder: Path) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(part) for part in folder.glob("part-*.parquet"))
