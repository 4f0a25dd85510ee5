"""The examples in docstrings of what users call, and how they are run."""

from __future__ import annotations

import doctest
import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import anabranch as ab
from docs.documents import PROJECT, read_blocks

REFERENCE = PROJECT / "docs" / "reference"
_NAMES = re.compile(r"^```\{names\}\n(.*?)^```$", re.M | re.S)
_NEEDS_SPARK = re.compile(r"\.start\(|\bspark\b")
_PARSER = doctest.DocTestParser()


@dataclass(frozen=True)
class Documented:
    """Something public, with its docstring."""

    name: str
    text: str

    @property
    def examples(self) -> list[doctest.Example]:
        return _PARSER.get_examples(self.text)

    @property
    def needs_spark(self) -> bool:
        return any(_NEEDS_SPARK.search(example.source) for example in self.examples)

    def run(self) -> None:
        """Run the example, behind what the reference says stands before each; what it prints must be as it says."""
        namespace: dict[str, Any] = {"__name__": "__main__"}
        before = next(block for block in read_blocks(REFERENCE / "index.md") if block.language == "python")
        exec(before.content, namespace)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        said: list[str] = []
        runner.run(_PARSER.get_doctest(self.text, namespace, self.name, None, None), out=said.append)
        assert not said, "".join(said)


def names_of_the_reference() -> list[str]:
    """Return the names that the pages of the reference show, those of ``anabranch`` itself without it."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md"))]
    lines = [line for page in pages for block in _NAMES.findall(page) for line in block.splitlines()]
    return [line.partition(":")[0] for line in lines]


def everything_public() -> list[Documented]:
    """Return every name of the reference, and the methods that flows and streams are written with."""
    found = []
    for name in names_of_the_reference():
        module, _, attribute = name.rpartition(".")
        found.append(Documented(name, _text_of(getattr(import_module(module) if module else ab, attribute))))
    for owner in (ab.Flow, ab.Stream):
        methods = inspect.getmembers(owner, inspect.isfunction)
        shown = [(name, method) for name, method in methods if not name.startswith("_")]
        found += [Documented(f"{owner.__name__}.{name}", _text_of(method)) for name, method in shown]
    return found


def _text_of(documented: object) -> str:
    return inspect.getdoc(documented) or ""
