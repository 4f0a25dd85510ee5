"""What ``--executors`` of ``anabranch run`` stands for."""

from __future__ import annotations

import pytest
import typer

from anabranch.cli.run.command import read_executors


def test_the_fewest_and_the_most_are_divided_by_a_colon() -> None:
    assert read_executors("1:4") == {"min_executors": 1, "max_executors": 4}


@pytest.mark.parametrize("given", ["4", "1:", ":4", "one:four", "1:-4"])
def test_anything_else_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 1:4"):
        read_executors(given)
