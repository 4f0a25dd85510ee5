"""What documents show is true: flow files load, commands exist, links lead somewhere, code that needs no Spark runs."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch import connectors, errors
from anabranch.cli.app import app
from anabranch.cli.loading import load
from anabranch.engine.settings import RunSettings
from docs.documents import (
    DOCUMENTS,
    PROJECT,
    README,
    RUNNABLE,
    Block,
    blocks_of,
    name_of,
    read_blocks,
    run_document,
    runs_flows,
)

PAGES = [document for document in DOCUMENTS if document.is_relative_to(PROJECT / "docs")]
ALL_PAGES = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("document", [each for each in RUNNABLE if not runs_flows(each)], ids=name_of)
def test_code_of_pages_without_runs_starts_no_spark_and_prints_what_they_say(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail(f"{name_of(document)} starts Spark; runs_flows() should know")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    run_document(document, tmp_path, monkeypatch)


def skipped_code() -> list[Block]:
    return [b for document in DOCUMENTS for b in read_blocks(document) if b.language == "python" and b.skipped]


@pytest.mark.parametrize("block", skipped_code(), ids=lambda block: block.place)
def test_code_that_cannot_run_here_calls_what_exists_with_arguments_that_exist(block: Block) -> None:
    calls = [node for node in ast.walk(ast.parse(block.content)) if isinstance(node, ast.Call)]
    checked = 0
    for call in calls:
        if isinstance(call.func, ast.Attribute):
            owners = [ab] if getattr(call.func.value, "id", "") == "ab" else [ab.Flow, ab.Stream, ab.Handle]
            found = next((getattr(owner, call.func.attr) for owner in owners if hasattr(owner, call.func.attr)), None)
            assert found is not None or owners != [ab], f"{block.place}: there is no ab.{call.func.attr}"
            if found is not None:
                given = {keyword.arg: None for keyword in call.keywords if keyword.arg}
                inspect.signature(found).bind_partial(**given)
                checked += 1
    assert checked, f"{block.place} calls nothing of ours; is it worth a block?"


def test_the_fifteen_lines_are_no_more_and_find_the_low_sensor() -> None:
    first = next(block for block in read_blocks(README) if block.language == "python")
    lines = [line for line in first.content.splitlines() if line.strip() and not line.startswith("import ")]
    assert len(lines) <= 15
    assert first.printed is not None
    assert "206.25" in first.printed


def flow_files(document: Path, folder: Path) -> list[Block]:
    """Write the document's files into a folder and return the flows among them."""
    flows = []
    for number, block in enumerate(read_blocks(document)):
        if block.skipped or block.language not in ("python", "yaml", "xml"):
            continue
        if block.file is not None:
            (folder / block.file).write_text(block.content, encoding="utf-8")
        if block.language in ("yaml", "xml"):
            flows.append(block)
            if block.file is None:
                (folder / f"block-{number}.{block.language}").write_text(block.content, encoding="utf-8")
    return flows


@pytest.mark.parametrize("document", sorted({b.document for b in blocks_of("yaml", "xml")}), ids=name_of)
def test_flow_files_load(document: Path, tmp_path: Path) -> None:
    assert flow_files(document, tmp_path)
    (tmp_path / "readings").mkdir()
    drawings: dict[str, str] = {}
    for path in sorted([*tmp_path.glob("*.yaml"), *tmp_path.glob("*.xml")]):
        loaded = load(str(path))
        drawings[path.name] = loaded.graph.explain()
        assert loaded.graph.sinks
    # The same flow, written twice under one name, is the same flow.
    for name, drawing in drawings.items():
        twin = drawings.get(name.replace(".yaml", ".xml"))
        assert twin is None or twin == drawing


def command_lines() -> list[tuple[str, str]]:
    return [
        (f"{block.place}: {line.strip()}", line.strip().removeprefix("$ "))
        for block in blocks_of("console")
        for line in block.content.splitlines()
        if line.strip().startswith("$ ")
    ]


@pytest.mark.parametrize("line", [line for _, line in command_lines()], ids=[where for where, _ in command_lines()])
def test_commands_exist_and_take_the_options_shown(line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
        for word in words:
            assert "=" in word or re.search(rf"^{re.escape(word)}:", makefile, re.M), f"no target {word}"
        return
    if program != "anabranch":
        assert program in ("python", "pip", "git", "cd"), f"what is {program}?"
        return
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{words[0]} is none of {list(command.commands)}"
        command = command.commands[words.pop(0)]
    known = {"-h", "--help", *(name for option in command.params for name in (*option.opts, *option.secondary_opts))}
    shown = [word.partition("=")[0] for word in words if word.startswith("-")]
    assert [option for option in shown if option not in known] == []


def test_the_readme_names_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
    assert text.index("<!-- figures:begin -->") < text.index("<!-- figures:end -->")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    # Figures are filled in by a bench run, picture and all.
    text = re.sub(r"<!-- figures:begin -->.*?<!-- figures:end -->", "", text, flags=re.S)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"\w+:", target):
            continue
        file, _, heading = target.partition("#")
        path = (document.parent / file).resolve() if file else document
        assert path.exists(), f"{name_of(document)} links to {target}"
        if heading:
            assert heading in anchors_of(path), f"{name_of(document)} links to {target}"


def anchors_of(document: Path) -> set[str]:
    """Return where links may lead within a document: headings as code hosts name them, and names of the text's own."""
    prose = prose_of(document)
    titles = re.findall(r"^#+ (.*)$", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | set(
        re.findall(r'<a id="([^"]+)">', prose)
    )


def prose_of(document: Path) -> str:
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_names_and_arguments_in_prose_exist(document: Path) -> None:
    # What was renamed is told of by its old name, too.
    spans = re.findall(r"`([^`\n]+)`", prose_of(document).partition("\n## Renamed\n")[0])
    assert [name for span in spans for name in re.findall(r"\bab\.(\w+)", span) if not hasattr(ab, name)] == []
    for span in spans:
        for public, name, arguments in re.findall(r"(ab\.)?\b(\w+)\(((?:[^()]|\([^()]*\))*)\)", span):
            owners = [ab] if public else [ab.Flow, ab.Stream, ab.Handle, ab.Timers]
            called = next((getattr(owner, name) for owner in owners if hasattr(owner, name)), None)
            if called is None:
                continue
            parameters = inspect.signature(called).parameters
            open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            given = re.findall(r"(?:^|,\s*)(\w+)=", re.sub(r"\([^()]*\)", "", arguments))
            assert open_ended or [argument for argument in given if argument not in parameters] == [], span


def test_pages_name_every_setting_of_a_run() -> None:
    text = (PROJECT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in RunSettings.model_fields if f"| `{name}` |" not in text] == []


def test_pages_name_every_public_function() -> None:
    public = [name for name in ab.__all__ if callable(getattr(ab, name))]
    assert len(public) > 10
    assert [name for name in public if f"ab.{name}" not in ALL_PAGES] == []


@pytest.mark.parametrize(
    ("constructor", "page"),
    [
        (connectors.files, "files"),
        (connectors.kafka, "kafka"),
        (connectors.kafka_topic, "kafka"),
        (connectors.generate, "sources"),
        (connectors.memory, "sources"),
        (connectors.foreach, "sinks"),
        (connectors.console, "sinks"),
    ],
)
def test_the_page_of_a_source_or_sink_names_every_option(constructor: Callable[..., Any], page: str) -> None:
    text = (PROJECT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    given = ("path", "callback", "frames", "servers", "topic")
    options = [name for name in inspect.signature(constructor).parameters if name not in given]
    assert [name for name in options if f"`{name}`" not in text and f"`{name}=" not in text] == []


def test_the_page_of_errors_names_every_error() -> None:
    text = (PROJECT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    known = [name for name, value in vars(errors).items() if inspect.isclass(value)]
    assert [name for name in known if f"`ab.{name}`" not in text] == []


def test_old_links_into_the_guide_still_lead_somewhere() -> None:
    # Sections that the guide had when it was one page, and that others may have linked to.
    guide = anchors_of(PROJECT / "docs" / "guide.md")
    assert {"skew", "whose-time", "the-checkpoint", "bad-files", "processors-state-and-timers", "limits"} <= guide
    assert len(guide) >= 42


def test_every_page_is_reached_from_the_index() -> None:
    reached, ahead = set(), [PROJECT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)\s#]+)", prose_of(page))
        ahead += [(page.parent / link).resolve() for link in links if not re.match(r"\w+:", link)]
    decisions = PROJECT / "docs" / "decisions"
    assert [name_of(page) for page in PAGES if page not in reached and page.parent != decisions] == []


def test_decisions_are_numbered_without_gaps_and_say_what_was_measured() -> None:
    files = sorted((PROJECT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))
    for file in files:
        text = file.read_text(encoding="utf-8")
        wanted = ["Context", "Decision", "Consequences", "What was measured"]
        assert [title for title in wanted if f"\n## {title}\n" not in text] == [], file.name


def test_yaml_of_documents_is_yaml() -> None:
    for block in blocks_of("yaml"):
        assert isinstance(yaml.safe_load(block.content), dict), block.place
