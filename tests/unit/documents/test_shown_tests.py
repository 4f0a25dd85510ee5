"""Tests that documents show pass, in a folder with the files that they are about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.documents import DOCUMENTS, name_of, read_blocks


def shows_tests(document: Path) -> bool:
    return any(Path(block.file or "").name.startswith("test_") for block in read_blocks(document))


SHOWING = [document for document in DOCUMENTS if shows_tests(document)]


@pytest.mark.parametrize("document", SHOWING, ids=name_of)
def test_tests_that_a_document_shows_pass(document: Path, tmp_path: Path) -> None:
    for block in read_blocks(document):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.content, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_the_page_about_testing_is_among_them() -> None:
    assert [document.name for document in SHOWING] == ["testing.md"]
