"""The public face: every name is there, and none of them costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

import anabranch as ab
from anabranch.cli import choices
from anabranch.query.plan import Parallelism

HEAVY = ("polars", "pyarrow", "pyspark", "numpy", "pandas", "matplotlib", "obstore", "psutil", "pydantic")

LIST_HEAVY = f"print([name for name in {HEAVY!r} if name in sys.modules])"


def heavy_modules_after(code: str) -> str:
    """Return which heavy modules a new process has imported after it ran the code."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{LIST_HEAVY}"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_every_public_name_can_be_used_and_is_listed() -> None:
    for name in ab.__all__:
        assert getattr(ab, name) is not None
    assert set(ab.__all__) <= set(dir(ab))
    assert ab.sum("x").kind == "sum"


def test_only_public_names_and_rooms_for_users_are_listed() -> None:
    rooms = {"connectors", "errors", "model", "testing"}
    assert {name for name in dir(ab) if not name.startswith("_")} == {*ab.__all__, *rooms}


def test_names_and_where_they_come_from_agree() -> None:
    listed = {name for names in ab._NAMES_BY_MODULE.values() for name in names}
    assert listed == set(ab.__all__)


def test_star_import_brings_the_public_names() -> None:
    brought: dict[str, object] = {}
    exec("from anabranch import *", brought)
    assert set(ab.__all__) <= set(brought)


def test_rooms_that_users_need_are_reached_from_the_public_face() -> None:
    assert heavy_modules_after("import anabranch as ab; ab.errors.FlowError") == "[]"
    assert ab.model.Sink.__name__ == "Sink"


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'anabranch' has no attribute 'sums'"):
        _ = ab.sums  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert heavy_modules_after("import anabranch") == "[]"


def test_a_process_that_only_asks_for_the_format_of_splits_imports_no_engine() -> None:
    assert "polars" not in heavy_modules_after("import anabranch.spark.split_format")


def test_a_worker_imports_nothing_that_only_flow_files_need() -> None:
    found = heavy_modules_after("import anabranch.engine.batches.local_jobs, anabranch.spark.split_source")
    assert "polars" in found and "pydantic" not in found


@pytest.mark.parametrize(
    "arguments",
    [[], ["run"], ["explain"], ["state"], ["state", "show"], ["ctl"], ["demo"], ["bench"], ["doctor"]],
    ids=" ".join,
)
def test_help_of_a_command_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"sys.argv = ['anabranch', *{arguments!r}, '--help']\n"
        "from anabranch.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0"
    )
    assert heavy_modules_after(code) == "[]"


def test_the_command_offers_every_parallelism_that_there_is() -> None:
    assert get_args(choices.Parallelism) == get_args(Parallelism)
