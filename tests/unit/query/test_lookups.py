"""``lookup()`` is checked as it is written, in Python and in flow files."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from anabranch.cli.loading import load
from anabranch.connectors import frame_table, memory, redis_table, to_memory
from anabranch.errors import FlowError
from anabranch.query.graph import FlowGraph
from anabranch.query.streams import Stream

ADS = pl.DataFrame({"ad": ["a"], "campaign": [1], "owner": ["Ann"]})


def clicks() -> Stream:
    return FlowGraph("clicks").read(memory(pl.DataFrame({"ad": ["a"], "price": [0.5]})))


def test_the_tables_columns_come_behind_the_streams_own() -> None:
    assert list(clicks().lookup(frame_table(ADS), "ad").schema) == ["ad", "price", "campaign", "owner"]
    chosen = clicks().lookup(frame_table(ADS), on="ad", columns=["owner"])
    assert chosen.schema == {"ad": pl.String, "price": pl.Float64, "owner": pl.String}
    declared = clicks().lookup(redis_table("redis://host", "{ad}"), on="ad", columns={"campaign": pl.Int64})
    assert declared.schema["campaign"] == pl.Int64


def test_explain_names_the_table_and_how_old_its_rows_may_be() -> None:
    stream = clicks().lookup(redis_table("redis://:hidden@host/0", "ad:{ad}"), "ad", columns={"campaign": pl.Int64})
    stream.write(to_memory())
    text = stream.graph.explain()
    assert "lookup campaign by ad in redis redis://host/0 ad:{ad}, at most 10m old" in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "add"}, "no column 'add'; did you mean 'ad'"),
        ({"on": ()}, "say by which columns"),
        ({"on": "price"}, "which is no key"),
        ({"on": "ad", "columns": ["campain"]}, "no column 'campain'; did you mean 'campaign'"),
        ({"on": "ad", "columns": {"price": pl.Float64}}, "has a column 'price' already"),
        ({"on": "ad", "missing": "ignore"}, "missing='ignore' is impossible"),
        ({"on": "ad", "cache": 0}, "cache is 0"),
        ({"on": "ad", "expires": "soon"}, "not a length of time"),
    ],
)
def test_what_is_wrong_is_said_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        clicks().lookup(frame_table(ADS), **arguments)  # type: ignore[arg-type]


def test_a_table_that_does_not_know_its_types_wants_them() -> None:
    with pytest.raises(FlowError, match="does not know its types"):
        clicks().lookup(redis_table("redis://host", "{ad}"), "ad")


def test_flow_files_look_up_as_well(tmp_path: Path) -> None:
    (tmp_path / "clicks").mkdir()
    (tmp_path / "flow.yaml").write_text(
        """\
flow: clicks
sources:
  clicks: {files: {path: clicks/, schema: {ad: String, price: Float64}}}
streams:
  known:
    from: clicks
    steps:
      - lookup:
          table: {redis_table: {url: "redis://host:6379/0", key: "ad:{ad}"}}
          on: ad
          columns: {campaign: Int64}
          missing: drop
          expires: 1m
    to: [{parquet: known/}]
"""
    )
    text = load(str(tmp_path / "flow.yaml")).graph.explain()
    assert "lookup campaign by ad in redis redis://host:6379/0 ad:{ad}, at most 1m old" in text
