"""Every name that help texts, documents and errors give for a bench, a peer or an option is there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from anabranch.cli.app import app
from benchmarks.joins.plan import choose_systems
from benchmarks.keyed_window.launch import FORMATS_BY_SYSTEM, SYSTEMS_BY_PEER
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions, choose_peers

PROJECT = Path(__file__).resolve().parents[3]
TEXTS = sorted(
    [
        *(PROJECT / "src").rglob("*.py"),
        *(PROJECT / "benchmarks").rglob("*.py"),
        *(PROJECT / "docs").rglob("*.md"),
        *(PROJECT / "examples").rglob("*"),
        PROJECT / "README.md",
        PROJECT / "Makefile",
    ]
)
_FIELD_OF_OPTION = {
    "--curves": "curves",
    "--keys": "keys",
    "--slots": "slots",
    "--z": "exponents",
    "--only": "only",
    "--formats": "formats",
    "--rounds": "rounds",
    "--memory-rows": "memory_rows",
    "--data": "data_dir",
}


def find_in_texts(pattern: str) -> list[tuple[str, re.Match[str]]]:
    return [
        (f"{path.relative_to(PROJECT)}: {match.string[match.start() : match.end()]!r}", match)
        for path in TEXTS
        if path.is_file() and path.suffix in ("", ".py", ".md", ".yaml")
        for match in re.finditer(pattern, path.read_text(encoding="utf-8"))
    ]


def options_of_the_command() -> dict[str, str]:
    """Return the help of each option of ``anabranch bench``."""
    command: Any = typer.main.get_command(app)
    return {name: option.help or "" for option in command.commands["bench"].params for name in option.opts}


def test_peers_that_texts_name_are_known_to_the_bench_they_are_named_for() -> None:
    found = find_in_texts(r"(?:anabranch bench (?P<bench>[\w-]+)[^\n`]*?)?--peers (?P<peers>[a-z][\w,-]*)")
    assert len(found) >= 3
    for place, match in found:
        # Where an error leaves it open, it stands in all benches that have Flink.
        benches = [match["bench"]] if match["bench"] else [n for n, bench in BENCHES.items() if "flink" in bench.peers]
        for bench in benches:
            asked = tuple(match["peers"].split(","))
            # Of joins, single ways of peers can be asked for, too.
            known, _ = choose_systems(asked, BENCHES["joins"].peers) if bench == "joins" else (None, None)
            assert asked == ("none",) or known or choose_peers(bench, asked), place


def test_benches_that_texts_name_exist() -> None:
    found = find_in_texts(r"anabranch bench (?P<bench>[a-z][\w-]*)")
    assert len(found) >= 8
    assert [place for place, match in found if match["bench"] not in BENCHES] == []


def test_options_that_texts_give_to_a_bench_exist() -> None:
    known = options_of_the_command()
    found = find_in_texts(r"anabranch bench [a-z][\w-]*(?P<rest>(?: [\w.,/-]+)+)")
    assert len(found) >= 4
    for place, match in found:
        assert [word for word in match["rest"].split() if word.startswith("-") and word not in known] == [], place


def test_help_says_which_benches_take_an_option() -> None:
    helps = options_of_the_command()
    for option, field in _FIELD_OF_OPTION.items():
        named = re.search(r"\(([\w, -]+)\)", helps[option])
        assert named, f"{option} does not say for which benches it is"
        takes = [name for name in BENCHES if f"options.{field}" in source_of(name)]
        assert sorted(named[1].split(", ")) == sorted(takes), option


def module_of(bench: str) -> Any:
    return importlib.import_module(f"benchmarks.{bench.replace('-', '_')}.bench")


def source_of(bench: str) -> str:
    """Return the code of a bench: a part of it may lie in a module of its own."""
    folder = Path(inspect.getfile(module_of(bench))).parent
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*.py")))


def test_every_peer_of_the_keyed_window_has_systems_that_run() -> None:
    assert tuple(SYSTEMS_BY_PEER) == BENCHES["keyed-window"].peers
    assert {system for systems in SYSTEMS_BY_PEER.values() for system in systems} < set(FORMATS_BY_SYSTEM)


@pytest.mark.parametrize("bench", BENCHES)
def test_a_peer_that_a_bench_does_not_know_is_refused_before_anything_runs(bench: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=f"unknown peers storm; {bench} knows"):
        BENCHES[bench].run(BenchOptions(peers=("storm",), cache_dir=tmp_path))


@pytest.mark.parametrize("bench", BENCHES)
def test_peers_come_in_the_order_of_the_bench_and_all_by_default(bench: str) -> None:
    known = BENCHES[bench].peers
    assert choose_peers(bench, None) == choose_peers(bench, known[::-1]) == known
    assert choose_peers(bench, ()) == ()
