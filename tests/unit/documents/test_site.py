"""What the site has beside the pages: a place for each of them, every command, and nothing from other hosts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from anabranch.cli.app import app
from docs.documents import PROJECT


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_docs", PROJECT / "scripts" / "build_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_has_one_place_in_the_sidebar(builder: ModuleType) -> None:
    listed = [
        folder + name
        for folder, _, names in (line.rpartition(": ") for line in builder.SIDEBAR.values())
        for name in names.split()
    ]
    listed += [f"reference/{name}" for name in builder.REFERENCE.split()]
    docs = PROJECT / "docs"
    pages = [page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md")]
    beside = ["index", *(page for page in pages if page.startswith("decisions/0"))]
    assert sorted(listed) == sorted([*(page for page in pages if page not in beside), "changelog", "readme"])


def commands_of(command: Any, words: str) -> dict[str, Any]:
    if not hasattr(command, "commands"):
        return {words: command}
    inner = [commands_of(each, f"{words} {name}") for name, each in command.commands.items()]
    return {name: each for found in inner for name, each in found.items()}


def test_the_reference_has_every_command_with_every_option(builder: ModuleType) -> None:
    text = builder.write_commands()
    commands = commands_of(typer.main.get_command(app), "anabranch")
    assert len(commands) >= 12
    for words, command in commands.items():
        section = text.partition(f"## {words}\n")[2].partition("\n## ")[0]
        shown = [name for param in command.params if not param.hidden for name in (*param.opts, *param.secondary_opts)]
        missing = [name for name in shown if name.startswith("-") and name not in section]
        assert section and not missing, f"{words}: {missing}"


def test_links_to_files_outside_lead_to_pages_that_show_them(builder: ModuleType) -> None:
    text = "[one](../../examples/long_ride.py), [two](../../CHANGELOG.md), [three](../decisions/), [four](files.md#x)"
    assert builder.relink(text, "docs/how-to/sources.md") == (
        "[one](../examples/long_ride-py.md), [two](../changelog.md), [three](../decisions/index.md), [four](files.md#x)"
    )
    assert {"CHANGELOG.md", "examples/long_ride.py"} <= set(builder.files_outside())


def test_names_lead_to_their_reference_once_and_not_from_headings(builder: ModuleType) -> None:
    text = "# `ab.files`\n`ab.files(path)`, `ab.files`, `ab.nothing`, [`ab.kafka`](kafka.md)"
    assert builder.link_names(text) == (
        "# `ab.files`\n{py:obj}`ab.files(path) <anabranch.files>`, `ab.files`, `ab.nothing`, [`ab.kafka`](kafka.md)"
    )


def test_what_a_page_would_load_from_another_host_is_found(builder: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text('<a href="https://x.org">x</a><img src="a.png"><script src="b.js"></script>')
    assert builder.find_foreign(tmp_path) == []
    (tmp_path / "bad.html").write_text('<script async src="https://cdn.x.org/a.js"></script>')
    (tmp_path / "bad.css").write_text("@import '//fonts.x.org/b.css'; a { background: url(https://x.org/c.png) }")
    assert len(builder.find_foreign(tmp_path)) == 3
