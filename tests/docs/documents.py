"""Documents taken apart: their fenced blocks, and what is said about testing each of them.

A comment in the line before a block says how it is tested, where its language does not say enough:
``<!-- test: skip because … -->`` leaves it out, ``<!-- test: file name.py -->`` writes it into the document's folder,
``<!-- test: run -->`` runs the commands of a ``console`` block: the lines below one are what it prints, with ``…`` for
anything. A ``text`` block that follows a ``python`` block is what that one prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model import BatchProgress

PROJECT = Path(__file__).resolve().parents[2]
README = PROJECT / "README.md"
DOCUMENTS = tuple(sorted([README, *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "examples").rglob("*.md")]))

_BLOCK = re.compile(r"(?:^<!-- test: (?P<order>.*?) -->\n)?^```(?P<language>\w+)\n(?P<content>.*?)^```$", re.M | re.S)
_SKIP = re.compile(r"skip because \w.{5,}")
_FILE = re.compile(r"file (?P<name>[\w./-]+)")
_RUN = "run"
_RUNS = re.compile(r"\.(run|start|backfill)\(")
_NEEDS_SPARK = re.compile(r"\.start\(|\bspark\b|ab\.foreach\(")
ON_SPARK = ("README.md", "docs/tutorial.md")
"""What people try first is run as they run it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a document."""

    document: Path
    line: int
    """Where its content begins, from 1."""
    language: str
    content: str
    skipped: bool = False
    file: str | None = None
    """The name under which it is written into the document's folder."""
    printed: str | None = None
    """What it prints, as the document says."""
    run: bool = False
    """Whether its commands are run, and what they print is compared."""

    @property
    def place(self) -> str:
        return f"{name_of(self.document)}:{self.line}"


def name_of(document: Path) -> str:
    """Return a document's path below the project."""
    return document.relative_to(PROJECT).as_posix()


def read_blocks(document: Path) -> list[Block]:
    """Return the document's blocks in order; an order about testing that is not understood is an error."""
    text = document.read_text(encoding="utf-8")
    blocks: list[Block] = []
    ends: list[int] = []
    for match in _BLOCK.finditer(text):
        order = match["order"] or ""
        file = _FILE.fullmatch(order)
        skipped = _SKIP.fullmatch(order) is not None
        run = order == _RUN and match["language"] == "console"
        assert not order or file or skipped or run, f"{name_of(document)}: unknown order 'test: {order}'"
        follows = bool(blocks) and not text[ends[-1] : match.start()].strip()
        if match["language"] == "text" and follows and blocks[-1].language == "python":
            last = blocks.pop()
            blocks.append(
                Block(last.document, last.line, "python", last.content, last.skipped, last.file, match["content"])
            )
        else:
            line = text.count("\n", 0, match.start("content")) + 1
            name = file["name"] if file else None
            blocks.append(Block(document, line, match["language"], match["content"], skipped, name, run=run))
        ends.append(match.end())
    return blocks


def blocks_of(*languages: str) -> list[Block]:
    """Return the blocks of these languages in all documents, those that are skipped left out."""
    return [
        block
        for document in DOCUMENTS
        for block in read_blocks(document)
        if block.language in languages and not block.skipped
    ]


def _code_of(document: Path) -> list[Block]:
    """Return what is run of a document: its Python, and commands that are to be run."""
    return [block for block in read_blocks(document) if (block.language == "python" and not block.skipped) or block.run]


RUNNABLE = tuple(document for document in DOCUMENTS if _code_of(document))


def runs_flows(document: Path) -> bool:
    """Say whether the document's code runs flows, rather than only writing them."""
    return any(_RUNS.search(block.content) for block in _code_of(document))


def needs_spark(document: Path) -> bool:
    """Say whether the document's flows must run on Spark; others give the same in this process."""
    return name_of(document) in ON_SPARK or any(_NEEDS_SPARK.search(block.content) for block in _code_of(document))


def run_here(
    flow: ab.Flow,
    checkpoint: str,
    *,
    spark: None = None,
    on_progress: Callable[[BatchProgress], None] | None = None,
    initial_state: Mapping[str, pl.DataFrame] | None = None,
    **settings: Any,
) -> list[BatchProgress]:
    """Run a flow as ``Flow.run`` does, in this process instead of on Spark."""
    flow.check(checkpoint=checkpoint, **settings)
    checked = make_settings(checkpoint=checkpoint, **settings)
    run = LocalRun(flow, checked, cores=2, on_progress=on_progress, initial_state=initial_state)
    try:
        return run.run_to_end()
    finally:
        run.close()


def run_document(document: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a document's code from top to bottom in a folder, and compare what it prints with what the document says."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")  # documents take secrets from there
    if document == README:
        make_sample_readings(folder)
    # Functions of __main__ are pickled by value, as those of a user's script are.
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in _code_of(document):
        if block.file is not None:
            compile(block.content, block.place, "exec")
            continue
        if block.run:
            _run_commands(block, folder)
            continue
        # Empty lines before it, so that a traceback names the document's own lines.
        code = compile("\n" * (block.line - 1) + block.content, str(document), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.printed is not None:
            assert printed.getvalue().strip() == block.printed.strip(), f"{block.place} prints something else"


def _run_commands(block: Block, folder: Path) -> None:
    """Run the commands of a block, and compare what each prints with the lines below it."""
    for shown in re.split(r"^\$ ", block.content, flags=re.M)[1:]:
        line, _, expected = shown.partition("\n")
        program, *words = shlex.split(line)
        assert program == "anabranch", block.place
        ran = subprocess.run(
            [sys.executable, "-m", "anabranch", *words],
            check=False,
            cwd=folder,
            env=os.environ | {"COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert ran.returncode == 0, f"{block.place}: {ran.stderr}"
        printed, expected = ("\n".join(map(str.rstrip, text.strip().splitlines())) for text in (ran.stdout, expected))
        pattern = ".*".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, printed, re.S), f"{block.place} prints something else:\n{printed}"


def make_sample_readings(folder: Path) -> None:
    """Leave what the README's flow reads: one sensor that goes low, one that does not."""
    (folder / "readings").mkdir()
    frame = pl.DataFrame(
        {
            "sensor": [1, 2, 1, 2, 1],
            "ts": [f"2026-01-01T00:00:{second:02d}.000" for second in (1, 2, 5, 9, 14)],
            "volts": [229.5, 231.0, 206.25, 230.0, -1.0],
        }
    )
    frame.write_ndjson(folder / "readings" / "morning.json")
