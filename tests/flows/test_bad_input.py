"""Bad rows are set apart and counted; bad flows fail before the first batch and name the alternatives."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.app import app
from anabranch.errors import EngineError, FlowError, SinkError, SourceError
from flows.running import START, FlowBench, frames_of, reading

SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("ms"), "whole": pl.Int64}


def write_lines(folder: Path, name: str, lines: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return hidden.rename(folder / name)


def line(key: Any, seconds: int, whole: Any = 1) -> str:
    return json.dumps({"key": key, "ts": f"2026-01-01T00:00:{seconds:02d}.000", "whole": whole})


def test_malformed_rows_and_null_keys_and_times_go_to_the_dead_letter_sink(bench: FlowBench, tmp_path: Path) -> None:
    write_lines(
        tmp_path / "in",
        "a.json",
        [
            line(1, 1),
            '{"key": 1, "ts": "2026-01-01T00:00',
            line("not a number", 2),
            line(2, 3),
            line(None, 4),
            '{"key": 3, "whole": 1}',
            "",
            line(1, 5),
        ],
    )
    flow, sink, dead = ab.Flow("test"), ab.to_memory(), ab.to_memory()
    flow.dead_letter(dead)
    stream = flow.read(ab.files(tmp_path / "in", format="json", schema=SCHEMA))
    stream.watermark("ts").key_by("key").window("10s").agg(rows=ab.count()).write(sink)
    got = bench.run_flow(flow, [sink])

    assert sorted((row["key"], row["rows"]) for row in got.rows) == [(1, 2), (2, 1)]
    assert got.dead_rows == 4
    assert got.progress[0].rows_in == 7
    letters = dead.frame()
    assert letters.columns == ["source", "reason", "payload"]
    reasons = letters.get_column("reason").to_list()
    assert len(reasons) == 4
    assert sum("null key key" in reason for reason in reasons) == 1
    assert sum("null event time ts" in reason for reason in reasons) == 1
    payloads = " ".join(letters.get_column("payload").to_list())
    assert "not a number" in payloads
    assert '{"key": 1, "ts": "2026-01-01T00:00' in payloads


def test_dead_letters_lie_in_the_checkpoint_unless_a_sink_is_named(bench: FlowBench) -> None:
    checkpoint = bench.new_checkpoint()
    flow, sink = ab.Flow("test"), ab.to_memory()
    rows = [[reading(1, 0), reading(None, 1), reading(2, 2), reading(None, 3)]]
    flow.read(ab.memory(*frames_of(rows))).key_by("key").agg(rows=ab.count()).write(sink)
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint)
    letters = [
        json.loads(text)
        for path in sorted(Path(checkpoint, "dead-letter").glob("part-*"))
        for text in path.read_text().splitlines()
    ]
    assert got.dead_rows == len(letters) == 2
    assert all("null key key" in letter["reason"] for letter in letters)


def test_bytes_durations_and_times_of_no_year_stop_no_flow(bench: FlowBench, tmp_path: Path) -> None:
    far = pl.Series([0, 6_248_426_000_000_000_000, 0, 0], dtype=pl.Int64).cast(pl.Datetime("us"))
    rows = pl.DataFrame(
        {
            "key": [b"\xff", b"\xff", None, b"\x00"],
            "lists": [[b"\xfe"], [], None, [b"a", None]],
            "far": far,
            "days": pl.Series([1, 1, 1, 2**40], dtype=pl.Int64).cast(pl.Duration("us")),
        }
    )
    (tmp_path / "in").mkdir()
    rows.write_parquet(tmp_path / "in" / "a.parquet")
    checkpoint = bench.new_checkpoint()
    flow, sink = ab.Flow("test"), ab.to_memory()
    stream = flow.read(ab.files(tmp_path / "in", format="parquet", schema=dict(rows.schema)))
    stream = stream.with_columns(later=pl.col("far") + pl.col("days") * 2**22)
    latest = stream.key_by("key").agg(lists=ab.last("lists"), days=ab.last("days"))
    # Behind a second hop, rows are ordered by what they are.
    latest.key_by("key").agg(rows=ab.count(), lists=ab.last("lists"), days=ab.last("days")).write(sink)
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint)

    assert [(row["key"], row["lists"]) for row in got.rows] == [(b"\xff", [b"\xfe"])]
    letters = [
        json.loads(text)
        for path in sorted(Path(checkpoint, "dead-letter").glob("part-*"))
        for text in path.read_text().splitlines()
    ]
    assert got.dead_rows == len(letters) == 3
    far_away, later, no_key = sorted(letters, key=lambda letter: letter["reason"].replace("column ", "").strip("'"))
    assert "far" in far_away["reason"]
    assert "6248426000000000000" in far_away["payload"]
    assert later["reason"].startswith("later holds a value outside the times")
    assert json.loads(later["payload"])["key"] == "AA=="
    assert no_key["reason"] == "null key key"
    assert json.loads(no_key["payload"])["lists"] is None


def test_a_file_that_vanishes_before_it_is_read_stops_the_flow_and_nothing_is_lost(
    bench: FlowBench, tmp_path: Path
) -> None:
    first = write_lines(tmp_path / "in", "a.json", [line(1, 1), line(2, 2)])
    second = write_lines(tmp_path / "in", "b.json", [line(1, 3)])
    os.utime(first, ns=(1, 1))
    text = second.read_bytes()

    def lose_the_other_file(frame: pl.DataFrame) -> pl.DataFrame:
        second.unlink(missing_ok=True)
        return frame

    def make_flow(*, losing: bool) -> ab.Flow:
        flow = ab.Flow("test")
        stream = flow.read(ab.files(tmp_path / "in", format="json", schema=SCHEMA))
        stream = stream.map_batches(
            lose_the_other_file if losing else lambda frame: frame,
            schema={k: v() if isinstance(v, type) else v for k, v in SCHEMA.items()},
        )
        stream.key_by("key").agg(rows=ab.count()).write(sink)
        return flow

    sink = ab.to_memory(tmp_path / "out")
    checkpoint = bench.new_checkpoint()
    with pytest.raises((EngineError, SourceError), match=r"b\.json"):
        bench.run_flow(make_flow(losing=True), [sink], checkpoint=checkpoint, read_tasks=1)
    assert sink.batches() == []
    second.write_bytes(text)
    got = bench.run_flow(make_flow(losing=False), [sink], checkpoint=checkpoint, read_tasks=1)
    assert sorted((row["key"], row["rows"]) for row in got.rows) == [(1, 2), (2, 1)]


def count_parquet(folder: Path, **options: Any) -> tuple[ab.Flow, Any]:
    flow, sink = ab.Flow("test"), ab.to_memory()
    source = ab.files(folder, format="parquet", schema={"key": pl.Int64, "whole": pl.Int64}, **options)
    flow.read(source).key_by("key").agg(rows=ab.count(), name="totals").write(sink)
    return flow, sink


def write_keys(folder: Path, name: str, keys: pl.Series) -> Path:
    folder.mkdir(exist_ok=True)
    pl.DataFrame({"key": keys, "whole": pl.Series([1] * len(keys), dtype=pl.Int8)}).write_parquet(folder / name)
    return folder / name


def latest_totals(rows: list[dict[str, Any]]) -> dict[int, int]:
    return {row["key"]: row["rows"] for row in sorted(rows, key=lambda row: row["rows"])}


def test_one_odd_file_is_left_out_by_the_command_that_the_error_names_and_the_state_is_kept(
    bench: FlowBench, tmp_path: Path
) -> None:
    checkpoint = bench.new_checkpoint()
    write_keys(tmp_path / "in", "a", pl.Series([1, 2]))
    flow, sink = count_parquet(tmp_path / "in")
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    write_keys(tmp_path / "in", "b", pl.Series([1, 3], dtype=pl.Int32))
    odd = write_keys(tmp_path / "in", "c", pl.Series(["one"]))
    flow, sink = count_parquet(tmp_path / "in")
    with pytest.raises(SourceError, match=r"has the column 'key' as String, declared as Int64") as stopped:
        bench.run_flow(flow, [sink], checkpoint=checkpoint)
    odd.unlink()
    with pytest.raises(SourceError, match=r"c was planned but is gone"):
        bench.run_flow(count_parquet(tmp_path / "in")[0], [sink], checkpoint=checkpoint)
    write_keys(tmp_path / "in", "c", pl.Series([5]))
    with pytest.raises(SourceError, match=r"c was replaced after it was planned"):
        bench.run_flow(count_parquet(tmp_path / "in")[0], [sink], checkpoint=checkpoint)

    command = str(stopped.value).partition("anabranch ")[2].partition(";")[0].split()
    assert command[:2] == ["state", "skip"]
    assert CliRunner().invoke(app, command).exit_code == 0
    write_keys(tmp_path / "in", "d", pl.Series([1], dtype=pl.UInt8))
    flow, sink = count_parquet(tmp_path / "in")
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert latest_totals(got.rows) == {1: 3, 3: 1}
    assert latest_totals(flow.read_state(checkpoint).to_dicts()) == {1: 3, 2: 1, 3: 1}
    assert [problem for entry in got.progress for problem in entry.problems if "set aside" in problem] == [
        f"{odd} is set aside, its rows are not read: left out by anabranch state skip"
    ]
    [letter] = pl.read_ndjson(f"{checkpoint}/dead-letter/*.json").to_dicts()
    assert letter["payload"] == str(odd)


def test_quarantined_files_are_told_of_and_all_others_are_counted(bench: FlowBench, tmp_path: Path) -> None:
    checkpoint = bench.new_checkpoint()
    write_keys(tmp_path / "in", "a", pl.Series([1, 2]))
    os.utime(tmp_path / "in" / "a", ns=(1, 1))
    odd = write_keys(tmp_path / "in", "b", pl.Series(["one"]))
    pl.DataFrame({"whole": [1]}).write_parquet(tmp_path / "in" / "c")
    pl.DataFrame({"key": [2]}).write_parquet(tmp_path / "in" / "d")
    flow, sink = count_parquet(tmp_path / "in", on_bad_file="quarantine")
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    assert latest_totals(got.rows) == {1: 1, 2: 2}
    problems = [problem for entry in got.progress for problem in entry.problems]
    assert [problem.partition(" is set aside")[0] for problem in problems] == [str(odd), str(tmp_path / "in" / "c")]
    letters = pl.read_ndjson(f"{checkpoint}/dead-letter/*.json").sort("payload")
    assert letters["payload"].to_list() == [str(odd), str(tmp_path / "in" / "c")]
    assert letters["reason"][0].startswith("file set aside: has the column 'key' as String")
    assert odd.exists()

    # Whoever runs the batch again leaves out the same files, even if they were mended meanwhile.
    write_keys(tmp_path / "in", "b", pl.Series([7]))
    again, sink = count_parquet(tmp_path / "in", on_bad_file="quarantine")
    shutil.rmtree(f"{checkpoint}/commits")
    shutil.rmtree(f"{checkpoint}/spark/commits")
    shutil.rmtree(f"{checkpoint}/dead-letter")
    replayed = bench.run_flow(again, [sink], checkpoint=checkpoint, drain=False)
    assert latest_totals(replayed.rows) == {1: 1, 2: 2}


def test_a_file_that_grows_after_it_was_planned_is_reported_and_its_new_rows_are_left(
    bench: FlowBench, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "in", "a.json", [line(1, 1), line(2, 2)])
    flow, sink = ab.Flow("test"), ab.to_memory()
    flow.read(ab.files(tmp_path / "in", format="json", schema=SCHEMA)).key_by("key").agg(rows=ab.count()).write(sink)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    with path.open("a") as file:
        file.write(line(1, 3) + "\n")
    write_lines(tmp_path / "in", "b.json", [line(3, 4)])
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    assert any("a.json" in problem for entry in got.progress for problem in entry.problems)
    assert sorted((row["key"], row["rows"]) for row in got.rows) == [(1, 1), (2, 1), (3, 1)]


def test_a_failing_function_stops_the_flow_with_its_own_words(bench: FlowBench) -> None:
    def refuse(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            raise ValueError("this value is cursed")
        return frame

    with pytest.raises(FlowError, match="this value is cursed"):
        bench.run([[reading(1, 0)]], lambda stream: stream.map_batches(refuse), job_attempts=1)


def test_a_task_that_fails_once_is_run_again_and_nothing_counts_twice(bench: FlowBench, tmp_path: Path) -> None:
    marker = tmp_path / "failed-once"

    def fail_once(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height and not marker.exists():
            marker.touch()
            raise OSError("the cable was pulled")
        return frame

    batches = [[reading(1, 0), reading(2, 1)], [reading(1, 2)]]
    flow, early, sink = ab.Flow("test"), ab.to_memory(), ab.to_memory()
    keyed = flow.read(ab.memory(*frames_of(batches))).write(early).key_by("key")
    keyed.agg(rows=ab.count()).map_batches(fail_once).write(sink)
    got = bench.run_flow(flow, [sink])
    assert marker.exists()
    assert [(row["key"], row["rows"]) for row in sorted(got.rows, key=lambda row: (row["rows"], row["key"]))] == [
        (1, 1),
        (2, 1),
        (1, 2),
    ]
    assert early.frame().height == 3


def test_a_sum_beyond_int64_stops_the_flow_and_names_the_key(bench: FlowBench) -> None:
    batches = [[reading(1, 0, 1), reading(2, 0, 2**63 - 1)], [reading(2, 1, 5)]]
    with pytest.raises(FlowError, match=r"total=sum: for key=2 whole numbers add up to .*Decimal"):
        bench.run(batches, lambda stream: stream.key_by("key").agg(total=ab.sum("whole")))


def test_a_start_that_a_sink_refuses_leaves_the_checkpoint_free(bench: FlowBench, tmp_path: Path) -> None:
    frames = frames_of([[reading(1, 0)]])
    other = ab.Flow("other")
    other.read(ab.memory(*frames)).write(ab.parquet(tmp_path / "taken"))
    bench.run_flow(other, [])
    checkpoint = bench.new_checkpoint()
    refused = ab.Flow("test")
    refused.read(ab.memory(*frames)).write(ab.parquet(tmp_path / "taken"))
    with pytest.raises(SinkError, match="other"):
        bench.run_flow(refused, [], checkpoint=checkpoint)
    mended, sink = ab.Flow("test"), ab.to_memory()
    mended.read(ab.memory(*frames)).write(sink)
    assert len(bench.run_flow(mended, [sink], checkpoint=checkpoint).rows) == 1


class TestBeforeTheFirstBatch:
    """No checkpoint is made and no query started."""

    @pytest.fixture
    def stream(self) -> Any:
        return ab.Flow("test").read(ab.memory(*frames_of([[reading(1, 0)]])))

    def test_a_missing_column_names_the_columns_that_exist(self, stream: Any) -> None:
        for wrong in (
            lambda: stream.key_by("sensor"),
            lambda: stream.filter(pl.col("volts") > 1),
            lambda: stream.filter("volts > 1"),
            lambda: stream.key_by("key").agg(total=ab.sum("volts")),
            lambda: stream.watermark("time"),
            lambda: stream.key_by("key").top_k(3, "volts"),
        ):
            with pytest.raises(FlowError, match="whole"):
                wrong()

    def test_a_wrong_type_says_what_was_found(self, stream: Any) -> None:
        with pytest.raises(FlowError, match="Int64"):
            stream.watermark("whole")
        with pytest.raises(FlowError, match="Float64"):
            stream.key_by("real")
        with pytest.raises(FlowError, match=r"ts.*Datetime|Datetime.*ts"):
            stream.key_by("key").agg(total=ab.sum("ts"))

    def test_an_unreadable_directory_names_what_lies_beside_it(self, bench: FlowBench, tmp_path: Path) -> None:
        (tmp_path / "readings").mkdir()
        flow = ab.Flow("test")
        flow.read(ab.files(tmp_path / "raedings", format="json", schema=SCHEMA)).write(ab.to_memory())
        checkpoint = bench.new_checkpoint()
        with pytest.raises(SourceError, match="readings"):
            bench.run_flow(flow, [], checkpoint=checkpoint)
        assert not Path(checkpoint).exists()

    def test_a_parquet_file_with_another_type_is_refused(self, bench: FlowBench, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        pl.DataFrame({"key": ["a"], "ts": [START]}).write_parquet(tmp_path / "in" / "a.parquet")
        flow = ab.Flow("test")
        schema = {"key": pl.Int64, "ts": pl.Datetime("us")}
        flow.read(ab.files(tmp_path / "in", format="parquet", schema=schema)).write(ab.to_memory())
        checkpoint = bench.new_checkpoint()
        with pytest.raises(FlowError, match="String"):
            bench.run_flow(flow, [], checkpoint=checkpoint)
        assert not Path(checkpoint).exists()

    def test_a_sink_that_holds_another_flows_results_is_refused(self, bench: FlowBench, tmp_path: Path) -> None:
        sink = ab.parquet(tmp_path / "out")
        for name in ("first", "second"):
            flow = ab.Flow(name)
            flow.read(ab.memory(*frames_of([[reading(1, 0)]]))).write(sink)
            if name == "first":
                bench.run_flow(flow, [sink])
                continue
            with pytest.raises(SinkError, match="first"):
                bench.run_flow(flow, [sink])

    def test_an_unknown_setting_and_an_unknown_trigger_name_the_known_ones(self, bench: FlowBench) -> None:
        flow = ab.Flow("test")
        flow.read(ab.memory(*frames_of([[reading(1, 0)]]))).write(ab.to_memory())
        with pytest.raises(FlowError, match="available-now"):
            bench.run_flow(flow, [], trigger="sometimes")
        with pytest.raises(FlowError, match="local_merge"):
            bench.run_flow(flow, [], workers=3)
        with pytest.raises(FlowError, match="slots=3"):
            bench.run_flow(flow, [], parallelism=3)

    def test_a_flow_without_a_sink_is_refused(self, bench: FlowBench) -> None:
        flow = ab.Flow("test")
        flow.read(ab.memory(*frames_of([[reading(1, 0)]])))
        with pytest.raises(FlowError, match="writes nothing"):
            bench.run_flow(flow, [])

    def test_two_sinks_in_one_directory_are_refused_and_named(self, bench: FlowBench, tmp_path: Path) -> None:
        flow = ab.Flow("test")
        stream = flow.read(ab.memory(*frames_of([[reading(1, 0)]])))
        stream.write(ab.parquet(tmp_path / "out"))
        stream.key_by("key").agg(rows=ab.count()).write(ab.json_lines(tmp_path / "out"))
        checkpoint = bench.new_checkpoint()
        with pytest.raises(SinkError, match=r"sink 0 and sink 1 \(parquet .*out and json .*out\)"):
            bench.run_flow(flow, [], checkpoint=checkpoint)
        assert not Path(checkpoint).exists() and not (tmp_path / "out").exists()

    def test_a_sink_in_the_folder_of_the_dead_letters_is_refused(self, bench: FlowBench) -> None:
        checkpoint = bench.new_checkpoint()
        flow = ab.Flow("test")
        flow.read(ab.memory(*frames_of([[reading(1, 0)]]))).write(ab.parquet(Path(checkpoint, "dead-letter")))
        with pytest.raises(SinkError, match="sink 0 and the dead-letter sink"):
            bench.run_flow(flow, [], checkpoint=checkpoint)
