"""Old public names work for a version, and say what to use."""

from __future__ import annotations

import warnings
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli.loading import load
from anabranch.engine.settings import make_settings
from anabranch.model import renamed


@pytest.fixture(autouse=True)
def nobody_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "_told", set())


def rows() -> ab.Stream:
    return ab.Flow("renamed").read(ab.memory(schema={"key": pl.Int64, "ts": pl.Datetime("us")}))


def test_slot_of_a_local_merge_is_a_slice() -> None:
    with pytest.warns(DeprecationWarning, match="LocalMerge: slot is called slice now"):
        old = ab.LocalMerge(slot="1s", count=10)  # type: ignore[call-arg]
    assert old == ab.LocalMerge(slice="1s", count=10)
    with pytest.warns(DeprecationWarning, match=r"LocalMerge\.slot is called slice now"):
        assert old.slot == "1s"


def test_ahead_of_a_watermark_is_the_future() -> None:
    with pytest.warns(DeprecationWarning, match="watermark: ahead is called future now"):
        old = rows().watermark("ts", ahead="1m")  # type: ignore[call-arg]
    assert old.node.operation == rows().watermark("ts", future="1m").node.operation


def test_strategy_of_a_run_is_its_parallelism() -> None:
    with pytest.warns(DeprecationWarning, match="run: strategy is called parallelism now"):
        old = make_settings(checkpoint="state", strategy="query")
    assert old == make_settings(checkpoint="state", parallelism="query")


def test_strategy_of_a_drawing_is_its_parallelism() -> None:
    stream = rows()
    stream.write(ab.console())
    flow = stream.graph
    with pytest.warns(DeprecationWarning, match="explain: strategy is called parallelism now"):
        old = flow.explain(strategy="query")  # type: ignore[call-arg]
    assert old == flow.explain(parallelism="query")


def test_springs_of_a_flow_are_its_sources() -> None:
    flow = rows().graph
    with pytest.warns(DeprecationWarning, match=r"Flow\.springs is called Flow\.named_sources now"):
        old = flow.springs()
    assert old == flow.named_sources()
    assert [source.source for source in old] == flow.sources


def test_trigger_of_the_balance_says_so_in_its_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"ab\.Trigger is called ab\.BalanceTrigger now"):
        old = ab.Trigger
    assert old is ab.BalanceTrigger
    assert "Trigger" not in ab.__all__


def test_an_old_name_is_told_of_once() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            ab.LocalMerge(slot="1s")  # type: ignore[call-arg]
    assert len(told) == 1
    assert told[0].filename == __file__


def test_old_and_new_name_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="slot is called slice now, and both are given"):
        ab.LocalMerge(slot="1s", slice="1s")  # type: ignore[call-arg]


OLD_FILE = """
flow: old
sources: {rows: {files: {path: rows/, schema: {key: Int64, ts: Datetime(us)}}}}
streams:
  counts:
    from: rows
    steps:
      - watermark: {column: ts, ahead: 1m}
      - key_by: key
        merge: {slot: 1s}
      - window: 10s
      - agg: {rows: count}
    to: console
run: {strategy: operator}
"""


def test_flow_files_of_before_run_and_the_command_says_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "old.yaml").write_text(OLD_FILE)
    new = OLD_FILE.replace("ahead:", "future:").replace("slot:", "slice:").replace("strategy:", "parallelism:")
    (tmp_path / "new.yaml").write_text(new)
    old = load(str(tmp_path / "old.yaml"))
    said = capsys.readouterr().err
    assert old.run == {"parallelism": "operator"}
    assert old.graph.explain() == load(str(tmp_path / "new.yaml")).graph.explain()
    assert [name for name in ("future", "slice", "parallelism") if f"is called {name} now" not in said] == []
    assert capsys.readouterr().err == ""
