"""Whatever is around a flow is stood in for, unless it is to stay real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.model.identities import Identity
from anabranch.testing import FlowTester
from unit.testing.flows import SCHEMA, at, topic

NOW = "2026-01-01T00:00:00"


class Outer:
    """Stands for a Spark DataFrame: rows come with the batch, and there is nothing that could read them here."""

    label = "Spark stream"
    streaming = True
    schema = SCHEMA
    identity = Identity("Spark stream")

    def check(self) -> None: ...


def sums(source: Any, sink: Any, **options: Any) -> ab.Flow:
    flow = ab.Flow("sums")
    stream = flow.read(source).key_by("sensor", **options).agg(total=ab.sum("volts"))
    stream.write(sink)
    return flow


SOURCES = {
    "kafka": topic,
    "files": lambda: ab.files("/nowhere", format="json", schema=SCHEMA),
    "generator": lambda: ab.generate(keys=5, rows_per_second=10),
    "memory": lambda: ab.memory(schema=SCHEMA),
    "Spark": Outer,
}
SINKS = {
    "parquet": lambda: ab.parquet("/proc/nowhere"),
    "postgres": lambda: ab.postgres("postgresql://db.invalid/x", table="sums"),
    "kafka": lambda: ab.kafka_topic("broker.invalid:9092", "sums"),
    "redis": lambda: ab.redis_hashes("redis://db.invalid", key="sums:{sensor}"),
    "foreach": lambda: ab.foreach(lambda frame, batch: None),
    "console": ab.console,
    "memory": ab.to_memory,
}


@pytest.mark.parametrize("name", SOURCES)
def test_any_source_is_stood_in_for(name: str) -> None:
    source = SOURCES[name]()
    flow = ab.Flow("any")
    flow.read(source).write(ab.console())
    with FlowTester(flow, now=NOW) as tester:
        row = {column: dtype.to_python()(1) for column, dtype in source.schema.items() if dtype.is_numeric()}
        assert tester.add([row, row]).run().results().height == 2
        assert dict(tester.results().schema) == dict(source.schema)


@pytest.mark.parametrize("name", SINKS)
def test_any_sink_is_stood_in_for(name: str) -> None:
    with FlowTester(sums(topic(), SINKS[name]()), now=NOW) as tester:
        tester.add([at(1, volts=2), at(2, volts=3)]).run()
        assert tester.results().rows() == [(1, 5.0)]


def test_sinks_and_sources_that_are_to_stay_real_do(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"sensor": 1, "volts": 2.5}\nbroken\n')
    source = ab.files(tmp_path / "in", format="json", schema={"sensor": pl.Int64, "volts": pl.Float64})
    flow = sums(source, ab.parquet(tmp_path / "out"))
    with FlowTester(flow, now=NOW, real_sources=True, real_sinks=[0]) as tester:
        tester.run()
        assert pl.read_parquet(tmp_path / "out" / "*.parquet").rows() == [(1, 2.5)]
        assert tester.dead_letters()["payload"].to_list() == ["broken"]
        with pytest.raises(ab.FlowError, match="the source 'in' is the real one"):
            tester.add(at(1))
        with pytest.raises(ab.FlowError, match="the sink 'out' is the real one: look where it writes"):
            tester.results()
    with FlowTester(sums(topic(), sink := ab.to_memory()), real_sinks=True, now=NOW) as tester:
        tester.add(at(1)).run()
        assert tester.results().rows() == sink.frame().rows() == [(1, 1.0)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"real_sources": "readings"}, "real_sources='readings' is a text; give a list"),
        ({"real_sinks": ["sums"]}, "no sink 'sums'; there are 0"),
        ({"real_sources": [3]}, "no source 3; there are 0"),
        ({"lookups": {"sites": []}}, "lookups: 'sites' is no part of a label; the flow looks rows up in: nothing"),
    ],
)
def test_what_is_to_be_real_or_replaced_must_be_there(given: Any, said: str) -> None:
    with pytest.raises(ab.FlowError) as raised:
        FlowTester(sums(topic(), ab.console()), **given)
    assert said in str(raised.value)


def test_spark_dataframes_cannot_stay_real() -> None:
    with pytest.raises(ab.FlowError, match="only Spark can read it"):
        FlowTester(sums(Outer(), ab.console()), real_sources=True)


def lookup_flow() -> ab.Flow:
    flow = ab.Flow("lookups")
    sites = ab.sql_table("postgresql://db.invalid/x", "sites")
    names = ab.sql_table("postgresql://db.invalid/x", "names")
    stream = flow.read(topic()).lookup(sites, on="sensor", columns={"site": pl.String}, missing="reject")
    stream.lookup(names, on="site", columns={"name": pl.String}).select("sensor", "site", "name").write(ab.console())
    return flow


def test_tables_are_replaced_by_rows() -> None:
    sites = [{"sensor": 1, "site": "n"}, {"sensor": 2, "site": "s"}]
    names = pl.DataFrame({"site": ["n"], "name": ["north"]})
    with FlowTester(lookup_flow(), now=NOW, lookups={"sites": sites, 1: names}) as tester:
        tester.add([at(1), at(1, sensor=2), at(1, sensor=3)]).run()
        assert sorted(tester.results().rows()) == [(1, "n", "north"), (2, "s", None)]
        assert "no row for sensor" in tester.dead_letters()["reason"][0]
        tester.restart(lookups={"sites": [{"sensor": 3, "site": "n"}], "names": names})
        tester.add(at(2, sensor=3)).run()
        assert tester.last.results().rows() == [(3, "n", "north")]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"postgres": []}, "'postgres' is a part of several labels"),
        ({"towns": []}, "'towns' is no part of a label; the flow looks rows up in:"),
        ({2: []}, "no lookup 2"),
        ({0: [{"sensor": 1, "town": "x"}]}, "lookups[0]: row 0: no column 'town'; there are sensor, site"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(tables: Any, said: str) -> None:
    with pytest.raises(ab.FlowError) as raised:
        FlowTester(lookup_flow(), lookups=tables)
    assert said in str(raised.value)


def test_partial_results_meet_in_a_store_of_the_testers_own() -> None:
    flow = sums(topic(), ab.global_store("postgresql://db.invalid/x", table="sums"))
    with FlowTester(flow, now=NOW) as tester:
        tester.add([at(1, volts=2), at(2, sensor=2)]).run()
        tester.kill_at("after-publish")
        with pytest.raises(ab.testing.Killed):
            tester.add(at(3, volts=3)).run()
        tester.run_all()
        assert sorted(tester.results().select("sensor", "total").rows()) == [(1, 5.0), (2, 1.0)]


def test_rows_go_to_the_partition_that_the_sources_partitioner_names() -> None:
    partitioner = ab.Partitioner("modulo", partitions=3, keys="sensor")
    source = ab.kafka("broker.invalid:9092", "t", schema=SCHEMA, format="json", partitioned_by=partitioner)
    with FlowTester(sums(source, ab.console()), now=NOW) as tester:
        batch = tester.add([at(1, sensor=sensor) for sensor in range(9)]).run()
        assert batch.progress.exchanges[0].sent_bytes == 0, "the partitions are the slots"
        assert sorted(tester.results().rows()) == [(sensor, 1.0) for sensor in range(9)]
        with pytest.raises(ab.AnabranchError, match="partition"):
            tester.add(at(2, sensor=1), partition="2").run()
