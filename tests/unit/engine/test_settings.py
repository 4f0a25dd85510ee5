"""Settings of a run that cannot be are refused before anything is started."""

from __future__ import annotations

from typing import get_type_hints

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.settings import RunKeywords, RunSettings, make_settings
from anabranch.errors import FlowError


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trigger": "now"}, r"^trigger: 'now' is no trigger; use 'continuous'"),
        ({"slots": 0}, r"^slots: input should be greater than or equal to 1, found 0$"),
        (
            {"parallelism": "best"},
            r"^parallelism: input should be 'operator-set', 'operator' or 'query', found 'best'$",
        ),
        (
            {"slot": 2},
            r"^unknown setting 'slot'; did you mean 'slots'\? there are checkpoint, trigger, latency, drain, slots",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_found(given: dict[str, object], words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_settings(checkpoint="state", **given)


def test_the_keywords_that_type_checkers_see_are_the_settings_that_there_are() -> None:
    keywords, settings = get_type_hints(RunKeywords), get_type_hints(RunSettings)
    assert set(keywords) == set(RunSettings.model_fields) - {"checkpoint"}
    assert keywords == {name: settings[name] for name in keywords}


def test_an_unknown_planner_is_refused_before_the_first_batch() -> None:
    flow = ab.Flow("planned")
    rows = flow.read(ab.memory(pl.DataFrame({"key": [1]})))
    rows.key_by("key", balance=ab.Balance(planner="luck")).agg(rows=ab.count()).write(ab.to_memory())
    with pytest.raises(FlowError, match="unknown planner 'luck'; there are mnrt, qmmp, readj, balance-load"):
        flow.check()
