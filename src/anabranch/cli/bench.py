"""``anabranch bench``: speed, after equal answers."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.reporting import FAILED, DebugOption, explained_errors, open_console, print_error


def bench(  # noqa: PLR0913 - a command line option each, as many as BenchOptions has
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The bench; without it, they are listed.", show_default=False)
    ] = None,
    *,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Input rows; each bench has its own default.", show_default=False),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Systems to compare with, of those that the bench knows; 'none' for no one. joins also takes single "
            "ways of theirs, such as flink-heap.",
            show_default="all it knows",
        ),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write pictures and logs.", show_default=False)
    ] = None,
    cache_dir: Annotated[
        Path | None, typer.Option(help="Where inputs and peers are kept from run to run.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the generated input.", show_default=False)] = None,
    curves: Annotated[
        bool,
        typer.Option(
            "--curves",
            help="Also measure over rows and keys (keyed-window, disorder, exchange, elastic): minutes more.",
        ),
    ] = False,
    keys: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Keys (planners, migration, disorder, exchange, operators, apps, joins, replicas).",
            show_default=False,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help="Slots (planners, skew, migration, exchange, joins).", show_default=False
        ),
    ] = None,
    z: Annotated[
        str | None,
        typer.Option(
            "--z", metavar="A,B", help="Zipf exponents of the keys (planners, skew, joins).", show_default=False
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Parts of the bench to run, by name (operators, joins, skew, ysb, elastic, replicas, energy).",
            show_default="all of them",
        ),
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Formats of files (joins).", show_default="all of them"),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How often systems take turns, or a simulated point is run (ysb, joins, elastic, replicas).",
            show_default=False,
        ),
    ] = None,
    memory_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Rows of the run that watches memory (joins).", show_default="50 million"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            envvar="ANABRANCH_BENCH_DATA",
            help="Real data, too (planners, skew, apps).",
            show_default=False,
        ),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Compare Anabranch with other systems on the same input; answers are compared before speed.

    [dim]Examples:[/dim]

      anabranch bench

      anabranch bench keyed-window --rows 2000000 --peers spark,flink

      anabranch bench planners --keys 1000000 --slots 100 --z 0.8,1.5

      anabranch bench skew --z 1.5 --out pictures --json skew.json

      anabranch bench joins --only interval --formats parquet --z 0.8 --rounds 1 --peers flink-heap,spark
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from anabranch.errors import name_alternatives

    _find_benches()
    from benchmarks.shared.registry import BENCHES, BenchOptions

    if name is None:
        table = Table.grid(padding=(0, 2))
        for known in BENCHES.values():
            beside = [Text(f"peers: {', '.join(known.peers)}", style="dim")] if known.peers else []
            table.add_row(known.name, Group(known.summary, *beside))
        open_console().print(table)
        return
    if name not in BENCHES:
        raise typer.BadParameter(f"unknown bench {name!r}; {name_alternatives(name, BENCHES)}", param_hint="NAME")
    given: dict[str, Any] = {
        "rows": rows,
        "peers": _read_peers(peers),
        "json_path": json_path,
        "out_dir": out,
        "cache_dir": cache_dir,
        "seed": seed,
        "curves": curves,
        "keys": keys,
        "slots": slots,
        "exponents": _read_exponents(z),
        "only": _read_names(only),
        "formats": _read_names(formats),
        "rounds": rounds,
        "memory_rows": memory_rows,
        "data_dir": data,
    }
    with explained_errors(debug):
        if out is not None and find_spec("matplotlib") is None:
            print_error("--out draws pictures with matplotlib, which is missing: pip install 'anabranch[pictures]'")
            raise typer.Exit(FAILED)
        options = BenchOptions(**{option: value for option, value in given.items() if value is not None})
        report = BENCHES[name].run(options)
        if not report.answers_equal:
            print_error("the systems gave different answers: the speeds above claim nothing")
            raise typer.Exit(FAILED)


def _find_benches() -> None:
    """Let ``benchmarks`` be imported from the clone that this package lies in; end the command where there is none."""
    clone = Path(__file__).resolve().parents[3]
    if not (clone / "benchmarks" / "__init__.py").is_file():
        print_error(
            "benches are not part of the installed package, they lie in benchmarks/ of its repository: "
            "clone that, `make setup` there, and run .venv/bin/anabranch bench"
        )
        raise typer.Exit(FAILED)
    if sys.path[0] != str(clone):
        sys.path.insert(0, str(clone))


def _read_peers(text: str | None) -> tuple[str, ...] | None:
    return () if text == "none" else _read_names(text)


def _read_names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _read_exponents(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        exponents = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        exponents = ()
    if not exponents or not all(0 <= exponent < 10 for exponent in exponents):
        raise typer.BadParameter(
            f"{text!r} are no exponents; give numbers from 0 on, such as 0.8,1.5", param_hint="--z"
        )
    return exponents
