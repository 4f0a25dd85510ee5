"""Every public name is in the reference, says what it does, and shows it by an example that runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

import anabranch as ab
from anabranch.routing.strategies import by_name
from docs.documents import run_here
from docs.examples import REFERENCE, Documented, everything_public, names_of_the_reference

INNER = (
    "Flow.add",
    "Flow.add_sink",
    "Flow.named_sources",
    "Flow.outputs",
    "Flow.springs",
    "Flow.start_on",
    "Flow.unused_name",
)
"""Methods that the library's own rooms call, and names of before."""
PUBLIC = [documented for documented in everything_public() if documented.name not in INNER]


def test_every_public_name_is_in_the_reference_once() -> None:
    names = names_of_the_reference()
    assert sorted(name for name in names if "." not in name) == sorted(ab.__all__)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("room", "public"),
    [(ab.connectors, ab.connectors.__all__), (ab.testing, ab.testing.__all__), (ab.model, ab.model.PUBLIC)],
    ids=["connectors", "testing", "model"],
)
def test_every_public_name_of_a_room_for_users_is_in_the_reference(room: ModuleType, public: Sequence[str]) -> None:
    names = set(names_of_the_reference())
    shown = {name for name in public if name in names and getattr(ab, name) is getattr(room, name)}
    pages = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    told = set(re.findall(rf"(?:^|`){re.escape(room.__name__)}\.(\w+)(?:`|$)", pages, re.MULTILINE))
    assert set(public) - shown - told == set()
    assert told <= set(public), "the reference shows what is not public"


@pytest.mark.parametrize("documented", PUBLIC, ids=lambda each: each.name)
def test_a_public_name_has_an_example_that_runs(
    documented: Documented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert documented.examples, f"{documented.name} has no example; write a few lines with >>> into its docstring"
    if not documented.needs_spark:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(ab.Flow, "run", run_here)
        # A strategy that an example enters is there for it alone.
        monkeypatch.setattr(by_name._strategies, "_entries", dict(by_name._strategies._entries))
        documented.run()
