"""Documents taken apart: their fenced blocks, and what is said about testing each of them.

A comment in the line before a block says how it is tested, where its language does not say enough:
``<!-- test: skip because … -->`` leaves it out, ``<!-- test: file name.py -->`` writes it into the document's folder.
A ``text`` block that follows a ``python`` block is what that one prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = tuple(
    sorted([PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "examples").rglob("*.md")])
)

_BLOCK = re.compile(r"(?:^<!-- test: (?P<order>.*?) -->\n)?^```(?P<language>\w+)\n(?P<content>.*?)^```$", re.M | re.S)
_SKIP = re.compile(r"skip because \w.{5,}")
_FILE = re.compile(r"file (?P<name>[\w./-]+)")


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
        assert not order or file or skipped, f"{name_of(document)}: unknown order 'test: {order}'"
        follows = bool(blocks) and not text[ends[-1] : match.start()].strip()
        if match["language"] == "text" and follows and blocks[-1].language == "python":
            last = blocks.pop()
            blocks.append(
                Block(last.document, last.line, "python", last.content, last.skipped, last.file, match["content"])
            )
        else:
            line = text.count("\n", 0, match.start("content")) + 1
            name = file["name"] if file else None
            blocks.append(Block(document, line, match["language"], match["content"], skipped, name))
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
