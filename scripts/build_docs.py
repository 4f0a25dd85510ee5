"""Build the documents as a site: pages of docs/, files that they link to, and a reference of every name and command.

``python scripts/build_docs.py site`` lays the pages out in build/pages, and lets Sphinx make the site of them. A link
that leads nowhere, a name without a reference or a page that no list has ends it with an error.

Pages are plain Markdown, for code hosts, too. What the site has beside them comes in here: the reference behind
```{names}, the options of each command, the list of decisions, links from names to their reference, and the sidebar.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import anabranch
from anabranch.cli.app import app

PROJECT = Path(__file__).resolve().parents[1]
SIDEBAR = {
    "Start": "tutorial tutorial-joins glossary limits guide",
    "Concepts": "concepts/: flows event-time keys exchange skew checkpoint",
    "How to read": "how-to/: sources files kafka bad-rows",
    "How to transform": "how-to/: expressions lookups joins hops-and-branches",
    "How to aggregate": "how-to/: windows late-rows silence aggregates processors",
    "How to write": "how-to/: sinks databases own-connectors",
    "Deploy": "deploy",
    "How to run": "how-to/: run watch history balance control replicas lab simulate testing read-state restart",
    "Reference": "reference/index",
    "Behind it": "speed architecture decisions/index changelog readme",
}
REFERENCE = (
    "flows running sources sinks tables aggregates processors testing balance errors protocols commands flow-files "
    "settings values"
)
MADE_BY_THE_LIBRARY = ("Batch", "Handle", "KeyState", "Stream", "Timers")
"""Classes that nobody calls: what they are made from says nothing to a reader."""
_FENCE = re.compile(r"^(?P<ticks>```+)(?P<language>\S*)\n(?P<content>.*?)^(?P=ticks)$", re.M | re.S)
_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_NAME = re.compile(r"(?<!\[)`ab\.(?P<name>\w+)(?P<rest>[^`<>\n]*)`(?!\])")
_LOADED = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)\s*=\s*["']?(?:https?:)?//[^>]*>"""
    r"""|(?:@import|url\()\s*["']?(?:https?:)?//[^)'\";]*"""
)
_MARKUP = re.compile(r"\[/?(?:bold|dim|italic)\]")


def lay_out(pages: Path) -> None:
    """Write every page as Sphinx is to read it."""
    shutil.rmtree(pages, ignore_errors=True)
    for file in (PROJECT / "docs").rglob("*"):
        if file.is_file() and file.suffix in (".md", ".svg"):
            _write(pages, file.relative_to(PROJECT).as_posix())
    for file in files_outside():
        _write(pages, file)


def files_outside() -> list[str]:
    """Return the files of the project outside docs/ that pages link to, and those that these link to."""
    found: set[str] = set()
    waiting = [path.relative_to(PROJECT).as_posix() for path in (PROJECT / "docs").rglob("*.md")]
    while waiting:
        file = waiting.pop()
        for match in _LINK.finditer(_FENCE.sub("", (PROJECT / file).read_text(encoding="utf-8"))):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(file), match["target"]))
            if ":" not in match["target"] and not target.startswith("docs") and target not in found:
                found.add(target)
                waiting += [target] if target.endswith(".md") else []
    return sorted(target for target in found if (PROJECT / target).is_file())


def place_of(file: str) -> str:
    """Return where a file of the project is among the pages: Markdown as it is, code as a page that shows it."""
    inside = file.removeprefix("docs/")
    if inside != file:
        return inside
    stem, dot, suffix = file.rpartition(".")
    return f"{stem.lower()}.md" if suffix == "md" else f"{stem}{dot.replace('.', '-')}{suffix}.md"


def _write(pages: Path, file: str) -> None:
    target = pages / place_of(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.name.endswith(".md"):
        shutil.copy(PROJECT / file, target)
        return
    text = (PROJECT / file).read_text(encoding="utf-8")
    if not file.endswith(".md"):
        language = {"py": "python", "yaml": "yaml", "sh": "bash"}.get(file.rpartition(".")[2], "text")
        target.write_text(
            f"---\norphan: true\n---\n\n# {file}\n\n````{language}\n{text.rstrip()}\n````\n", encoding="utf-8"
        )
        return
    text = _in_fences(text, _show)
    text = _outside_fences(text, lambda prose: link_names(relink(prose, file)))
    if file == "docs/index.md":
        text += "".join(_list_pages(names, f":hidden:\n:caption: {caption}") for caption, names in SIDEBAR.items())
    elif file == "docs/reference/index.md":
        text += _list_pages(REFERENCE, ":hidden:")
    elif file == "docs/reference/commands.md":
        text += "\n" + write_commands()
    elif file == "docs/decisions/index.md":
        names = sorted((path.stem for path in (PROJECT / "docs" / "decisions").glob("[0-9]*.md")), reverse=True)
        text += _list_pages(" ".join(names), ":maxdepth: 1")
    elif not file.startswith("docs/") and "/" in file:
        text = f"---\norphan: true\n---\n\n{text}"
    target.write_text(text, encoding="utf-8")


def _list_pages(names: str, options: str) -> str:
    """Return a list of pages; those behind ``folder/:`` lie there."""
    folder, _, listed = names.rpartition(": ")
    pages = "\n".join(folder + name for name in listed.split())
    return f"\n```{{toctree}}\n{options}\n\n{pages}\n```\n"


def relink(text: str, file: str) -> str:
    """Return a text of the project's with its links as the site has them."""
    here = posixpath.dirname(place_of(file)) or "."

    def point(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(file), match["target"]))
        if ":" in match["target"] or not (PROJECT / target).exists():
            return match[0]
        if (PROJECT / target).is_dir():
            target += "/index.md"
        return f"]({posixpath.relpath(place_of(target), here)}{match['anchor'] or ''})"

    return _LINK.sub(point, text)


def link_names(text: str) -> str:
    """Let the public names of a text lead to their reference, each where it comes first."""
    seen: set[str] = set()

    def link(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in anabranch.__all__ or name in seen:
            return match[0]
        seen.add(name)
        return f"{{py:obj}}`ab.{name}{match['rest']} <anabranch.{name}>`"

    lines = text.split("\n")
    # A heading is where links lead to.
    return "\n".join(line if line.startswith("#") else _NAME.sub(link, line) for line in lines)


def _show(fence: re.Match[str]) -> str:
    if fence["language"] == "{names}":
        lines = fence["content"].splitlines()
        return "\n".join(f"```{{eval-rst}}\n{describe_name(*line.split(': '))}\n```\n" for line in lines)
    # A diagram would be drawn by a script from elsewhere; the text around it says the same.
    return "" if fence["language"] == "mermaid" else fence[0]


def describe_name(name: str, methods: str = "") -> str:
    """Return the directive that makes the reference of a name: with all it has, or with the methods that are named."""
    path = name if name.startswith("anabranch.") else f"anabranch.{name}"
    module, _, attribute = path.rpartition(".")
    found = getattr(import_module(module), attribute)
    if not inspect.isclass(found):
        return f".. autofunction:: {path}"
    if issubclass(found, Exception):
        return f".. autoexception:: {path}"
    called_by_nobody = attribute in MADE_BY_THE_LIBRARY or getattr(found, "_is_protocol", False)
    chosen = [f"   .. automethod:: {path}.{method}" for method in methods.split(", ") if method]
    return "\n\n".join(
        [f".. autoclass:: {path}{'()' if called_by_nobody else ''}" + ("" if chosen else "\n   :members:"), *chosen]
    )


def write_commands() -> str:
    """Return every command with its arguments and options, as the program knows them."""
    return "\n".join(_write_command(typer.main.get_command(app), "anabranch"))


def _write_command(command: Any, words: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            if not inner.hidden:
                yield from _write_command(inner, f"{words} {name}")
        return
    context = typer.Context(command, info_name=words)
    usage = " ".join(command.collect_usage_pieces(context)).translate(str.maketrans("", "", "{}"))
    yield f"## {words}\n\n```text\n{words} {usage}\n```\n\n{_as_markdown(command.help)}\n"
    yield "| argument or option | meaning |\n|---|---|"
    for param in command.get_params(context):
        if not param.hidden:
            name, meaning = (text.replace("|", "\\|") for text in param.get_help_record(context))
            yield f"| `{name}` | {meaning} |"
    yield ""


def _as_markdown(help_text: str | None) -> str:
    """Return a help text as Markdown: what it indents, actions and examples, becomes code."""

    def as_code(lines: re.Match[str]) -> str:
        return "```text\n" + re.sub(r"\n+ {2}", "\n", lines[0][2:]).rstrip() + "\n```\n\n"

    return re.sub(r"(?:^ {2}.*\n*)+", as_code, _MARKUP.sub("", help_text or ""), flags=re.M)


def _in_fences(text: str, change: Callable[[re.Match[str]], str]) -> str:
    return _FENCE.sub(change, text)


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    pieces, last = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [change(text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, change(text[last:])])


def find_foreign(site: Path) -> list[str]:
    """Return what pages and styles of the site would load from other hosts; links to click on are none of it."""
    found = []
    for file in sorted(site.rglob("*")):
        if file.suffix in (".html", ".css"):
            found += [
                f"{file.relative_to(site)}: {match}" for match in _LOADED.findall(file.read_text(encoding="utf-8"))
            ]
    return found


def main(site: Path) -> int:
    """Build the site; return 0 if nothing is wrong with it."""
    from sphinx.cmd.build import build_main

    pages = PROJECT / "build" / "pages"
    lay_out(pages)
    shutil.rmtree(site, ignore_errors=True)
    doctrees = PROJECT / "build" / "doctrees"
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--fresh-env", "--jobs", "auto"]
    places = ["-d", str(doctrees), "-c", str(PROJECT / "docs"), str(pages), str(site)]
    if failed := build_main([*options, "-b", "html", *places]):
        return failed
    foreign = find_foreign(site)
    for loaded in foreign:
        print(f"loaded from elsewhere, so not to be read without a network: {loaded}", file=sys.stderr)
    return 1 if foreign else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
