"""What is found in a join's predicate: equal columns, and bands that hold every pair which fulfils it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.joins import LEFT, RIGHT, Band
from anabranch.operators.joins.number_order import order_bounds, order_numbers
from anabranch.query.predicates import find_band, find_equal_columns, split_conjuncts
from property_tests import tries

TYPES: dict[str, pl.DataType] = {
    "whole": pl.Int64(),
    "short": pl.Int8(),
    "count": pl.UInt32(),
    "level": pl.Float64(),
    "single": pl.Float32(),
    "time": pl.Datetime("us"),
    "day": pl.Date(),
    "text": pl.String(),
}
LEFT_NAMES, RIGHT_NAMES = list(TYPES), [f"{name}_right" for name in TYPES]
SCHEMA = TYPES | {f"{name}_right": dtype for name, dtype in TYPES.items()}


def find(predicate: pl.Expr | str) -> Band | None:
    read = pl.sql_expr(predicate) if isinstance(predicate, str) else predicate
    return find_band(split_conjuncts(read), (LEFT_NAMES, RIGHT_NAMES), SCHEMA)


@pytest.mark.parametrize(
    ("predicate", "least", "most"),
    [
        ("abs(whole - whole_right) <= 3", -3, 3),
        ("abs(whole_right - whole) < 3", -3, 3),
        ("whole BETWEEN whole_right - 1 AND whole_right + 2", -2, 1),
        ("whole_right - whole BETWEEN 2 AND 5", 2, 5),
        ("whole_right >= whole + 2 AND whole_right <= whole + 9 AND whole_right < whole + 7", 2, 7),
        ("2 + whole <= whole_right - 3", 5, None),
        ("whole > whole_right", None, 0),
        ("whole - whole_right = 4", -4, -4),
        ("abs(level - level_right) <= 0.5", -0.5, 0.5),
        ("level < level_right", 0, None),
        ("level_right - level BETWEEN 1 AND 24", None, 24),
        ("whole <= level_right", 0, None),
        ("short < short_right", 0, None),
        ("count_right <= count", None, 0),
        ("time BETWEEN time_right - INTERVAL '5 seconds' AND time_right + INTERVAL '2 seconds'", -2_000_000, 5_000_000),
        (pl.col("time_right") - pl.col("time") <= timedelta(minutes=1), None, 60_000_000),
        (pl.col("day_right") <= pl.col("day") + timedelta(days=2), None, 2),
        (pl.col("whole").is_between(pl.col("whole_right"), pl.col("whole_right") + 1, closed="none"), -1, 0),
        ("text = text_right AND abs(whole - whole_right) <= 1", -1, 1),
    ],
)
def test_numbers_that_must_be_near_are_a_band(predicate: Any, least: float | None, most: float | None) -> None:
    band = find(predicate)
    assert band is not None
    assert (band.least, band.most) == (least, most)


@pytest.mark.parametrize(
    "predicate",
    [
        "whole <> whole_right",
        "whole < whole_right OR level < level_right",
        "whole < 5 AND whole_right > 3",
        "text < text_right",
        # What is taken from a number without a sign, or from a small one, may wrap around.
        "count - count_right >= 1",
        "count <= count_right - 1",
        "short <= short_right + 100",
        # A difference that is no number is more than any.
        "level - level_right >= 1",
        "whole + whole_right < 3",
        "time < day_right",
    ],
)
def test_what_cannot_be_searched_is_no_band(predicate: str) -> None:
    assert find(predicate) is None


def test_columns_that_must_be_equal_are_found_whichever_comes_first() -> None:
    conditions = split_conjuncts(pl.sql_expr("text_right = text AND whole = whole_right AND level < level_right"))
    assert find_equal_columns(conditions, (LEFT_NAMES, RIGHT_NAMES)) == [
        (0, "text", "text_right"),
        (1, "whole", "whole_right"),
    ]
    assert not find_equal_columns([pl.col("whole") == pl.col("short")], (LEFT_NAMES, RIGHT_NAMES))


wholes = st.one_of(st.integers(-20, 20), st.integers(-(2**62), 2**62))
reals = st.one_of(
    st.integers(-20, 20).map(lambda number: number / 4),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.30000000000000004]),
)
BANDS = (
    "abs({0} - {0}_right) <= 1",
    "{0} BETWEEN {0}_right - 0.1 AND {0}_right + 0.2",
    "{0}_right <= {0} + 0.3",
    "{0} < {0}_right",
    "{0} - {0}_right <= 0.1",
    "{0}_right - {0} BETWEEN 0.1 AND 0.2",
    "{0} = {0}_right",
    "{0} >= {0}_right AND {0} <= {0}_right + 1",
)


@tries(200)
@given(
    st.sampled_from(BANDS),
    st.sampled_from(["whole", "level", "single"]),
    st.data(),
)
def test_no_pair_that_fulfils_the_predicate_is_outside_its_band(text: str, column: str, data: Any) -> None:
    values = wholes if column == "whole" else reals
    text = text.replace("0.1", "1").replace("0.2", "2").replace("0.3", "3") if column == "whole" else text
    sides = [
        pl.Series(name, data.draw(st.lists(values, min_size=1, max_size=8)), dtype=pl.Float64)
        if column != "whole"
        else pl.Series(name, data.draw(st.lists(values, min_size=1, max_size=8)), dtype=pl.Int64)
        for name in (column, f"{column}_right")
    ]
    left, right = (side.cast(TYPES[column]) for side in sides)
    predicate = pl.sql_expr(text.format(column))
    band = find(predicate)
    assert band is not None
    fits = (
        pl.DataFrame([left]).join(pl.DataFrame([right]), how="cross").select(predicate.alias("fits")).to_series()
    ).to_numpy()
    fits = fits.reshape(len(left), len(right))
    for seeker, seeking, others in ((LEFT, left, right), (RIGHT, right, left)):
        least, most = (band.least, band.most) if seeker == LEFT else (_turn(band.most), _turn(band.least))
        first, last = order_bounds(seeking, least, most, whole=band.whole, single=band.single)
        keys = order_numbers(others, whole=band.whole)
        inside = (keys >= first[:, None]) & (keys <= last[:, None])
        assert not (fits & ~(inside if seeker == LEFT else inside.T)).any()


def _turn(end: float | None) -> float | None:
    return None if end is None else -end


@given(st.lists(st.one_of(reals), min_size=2))
def test_floats_keep_their_order_as_hashes(numbers: list[float]) -> None:
    values = pl.Series(numbers, dtype=pl.Float64)
    keys = order_numbers(values, whole=False)
    order = np.argsort(keys, kind="stable")
    ordered = values.gather(order)
    # Polars' own order: NaN is the largest, and -0 is 0.
    assert ordered.is_sorted()
    ranks = values.rank("dense").to_numpy()
    assert len(np.unique(keys)) == len(np.unique(ranks[~np.isnan(ranks)])) or values.is_nan().any()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(-(2**63), 2**63 - 1))
def test_integers_keep_their_order_and_stop_at_the_ends(numbers: list[int], step: int) -> None:
    values = pl.Series(numbers, dtype=pl.Int64)
    assert np.argsort(order_numbers(values, whole=True), kind="stable").tolist() == sorted(
        range(len(numbers)), key=lambda place: numbers[place]
    )
    first, _ = order_bounds(values, step, None, whole=True)
    clipped = [max(min(number + step, 2**63 - 1), -(2**63)) for number in numbers]
    assert first.tolist() == order_numbers(pl.Series(clipped, dtype=pl.Int64), whole=True).tolist()
