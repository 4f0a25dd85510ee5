"""Declared fields take what fits them, and come back as they were stored."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.operators.processors.declared_state import KeyState, changes_of, collect_fields, listed, mapped, value
from anabranch.operators.processors.processor import Processor


class Everything(Processor):
    count = value(pl.Int64, default=0)
    real = value(pl.Float64())
    narrow = value(pl.Float32())
    at = value(pl.Datetime("us"))
    day = value(pl.Date())
    price = value(pl.Decimal(10, 2))
    point = value(pl.Struct({"x": pl.Int64(), "y": pl.Int64()}))
    names = listed(pl.String())
    totals = mapped(pl.String(), pl.Int64())


def fresh(**stored: Any) -> KeyState:
    return KeyState(Everything.state_fields, dict.fromkeys(Everything.state_fields) | stored)


def test_what_was_not_stored_reads_as_the_default() -> None:
    state = fresh()
    assert (state.count, state.real, list(state.names), dict(state.totals)) == (0, None, [], {})
    assert changes_of(state) == {}


def test_looking_at_a_field_changes_nothing() -> None:
    state = fresh(count=4, names=["a"], totals=[{"key": "a", "value": 1}])
    assert (state.count, state.names[0], state.totals["a"], "b" in state.totals) == (4, "a", 1, False)
    assert changes_of(state) == {}


def test_changes_are_stored_as_columns_have_them() -> None:
    state = fresh(names=["a"], totals=[{"key": "a", "value": 1}])
    state.count += 2
    state.names.extend(["b", "c"])
    del state.names[0]
    state.totals["b"] = 5
    state.totals["a"] += 1
    assert changes_of(state) == {
        "count": 2,
        "names": ["b", "c"],
        "totals": [{"key": "a", "value": 2}, {"key": "b", "value": 5}],
    }


def test_defaults_and_empty_fields_are_stored_as_nothing() -> None:
    state = fresh(count=4, real=1.5, names=["a"], totals=[{"key": "a", "value": 1}])
    state.count = 0
    state.real = None
    state.names.clear()
    del state.totals
    assert changes_of(state) == {"count": None, "real": None, "names": None, "totals": None}
    state.count = 7
    state.clear()
    assert state.count == 0


def test_whole_lists_and_maps_can_be_assigned() -> None:
    state = fresh()
    state.names = ("a", "b")
    state.totals = {"x": 1}
    assert changes_of(state) == {"names": ["a", "b"], "totals": [{"key": "x", "value": 1}]}
    with pytest.raises(TypeError, match=r"state\.names: 3 \(int\) does not fit String"):
        state.names = [3]


def test_a_value_reads_at_once_as_it_will_after_it_was_stored() -> None:
    state = fresh()
    state.narrow = 0.1
    state.at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    state.price = Decimal("1.50")
    state.day = date(2026, 1, 1)
    assert state.narrow == pytest.approx(0.1) and state.narrow != 0.1
    assert state.at == datetime(2026, 1, 1, 12)
    assert changes_of(state)["price"] == Decimal("1.50")


def test_a_struct_may_be_changed_in_place() -> None:
    state = fresh(point={"x": 1, "y": 2})
    state.point["x"] = 5
    assert changes_of(state) == {"point": {"x": 5, "y": 2}}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("count", 1.5),
        ("count", True),
        ("count", 2**63),
        ("real", "1"),
        ("at", date(2026, 1, 1)),
        ("day", datetime(2026, 1, 1)),
        ("price", "x"),
        ("price", Decimal("1E+40")),
        ("price", Decimal("1E-400")),
        ("price", Decimal("NaN")),
        ("price", object()),
        ("real", 10**400),
        ("at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))),
        ("point", 5),
        ("totals", {1: 1}),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_assigned(field: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"state.{field}: .* does not fit"):
        setattr(fresh(), field, wrong)


def test_fields_of_classes_above_count_and_can_be_overridden() -> None:
    class Below(Everything):
        count = value(pl.Int32(), default=1)
        names = None
        more = listed(pl.Int64())

    fields = collect_fields(Below)
    assert fields["count"].stored_type == pl.Int32()
    assert "names" not in fields
    assert list(fields)[-1] == "more"


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: value(pl.List(pl.Int64())), "ab.listed"),
        (lambda: value(int), "give a type of Polars"),
        (lambda: listed(pl.Struct({"x": pl.List(pl.Object())})), "give a type of Polars"),
        (lambda: value(pl.Int64(), default="x"), "the default 'x'"),
        (lambda: mapped(pl.Float64(), pl.Int64()), "keys of a map"),
        (lambda: type("Bad", (Processor,), {"clear": value(pl.Int64())}), "cannot be called that"),
        (lambda: type("Bad", (Processor,), {"_x": value(pl.Int64())}), "cannot be called that"),
    ],
)
def test_what_cannot_be_declared_is_refused(declare: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        declare()
