"""Blocks cross an exchange as they are, and a task has them in one order, whichever came first."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from anabranch.engine.tasks.blocks import DRIVER, NO_OPERATOR, Block, BlockKind, in_order
from anabranch.spark.arrow_blocks import EXCHANGE_SCHEMA, from_arrow, to_arrow, to_table

blocks = st.builds(
    Block,
    level=st.integers(1, 20) | st.just(DRIVER),
    slot=st.integers(0, 9_999),
    kind=st.sampled_from(BlockKind),
    operator=st.integers(NO_OPERATOR, 1_000_000),
    input=st.integers(0, 1),
    seq=st.integers(0, 2**63 - 1),
    combined=st.booleans(),
    payload=st.binary(max_size=20),
)


@given(st.lists(blocks))
def test_blocks_come_out_of_arrow_as_they_went_in(sent: list[Block]) -> None:
    assert from_arrow(to_arrow(sent)) == sent
    assert from_arrow(to_table(sent).to_batches()) == sent


def test_spark_has_the_same_fields_as_arrow() -> None:
    table = to_table([])
    assert [field.name for field in EXCHANGE_SCHEMA] == table.column_names == list(Block.__slots__)


@given(st.lists(blocks, unique_by=lambda block: (block.kind, block.operator, block.input, block.seq)), st.randoms())
def test_order_does_not_depend_on_which_came_first(sent: list[Block], chance: random.Random) -> None:
    arrived = chance.sample(sent, len(sent))
    assert in_order(arrived) == in_order(sent)


def test_shared_rows_come_first_and_failures_last() -> None:
    sent = [Block(1, 0, kind, 0, 0, number, False, b"") for number, kind in enumerate(reversed(BlockKind))]
    assert [block.kind.name for block in in_order(sent)] == [
        "SHARED",
        "REPORT",
        "ROWS",
        "BUFFERED",
        "TIMES",
        "FAILURE",
    ]
