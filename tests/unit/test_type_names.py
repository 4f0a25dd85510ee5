"""Types by name mean what Polars means by them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.formats.schemas import normalise_schema
from anabranch.errors import FlowError
from anabranch.model.type_names import TYPE_FORMS, parse_type
from anabranch.query.files.column_types import parse_schema

PLAIN = [
    pl.Boolean(),
    pl.Int8(),
    pl.Int64(),
    pl.Int128(),
    pl.UInt32(),
    pl.Float32(),
    pl.String(),
    pl.Binary(),
    pl.Date(),
    pl.Time(),
]
UNITS = st.sampled_from(["ms", "us", "ns"])
ZONES = st.sampled_from([None, "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"])
# Whatever may stand in a name: brackets, quotes, commas and colons among it.
WORDS = st.text(st.sampled_from("ab ,:()[]{}'\\\"=µ"), min_size=1, max_size=6)
DECIMALS = st.integers(1, 38).flatmap(lambda digits: st.builds(pl.Decimal, st.just(digits), st.integers(0, digits)))
LEAVES = st.one_of(
    st.sampled_from(PLAIN),
    st.builds(pl.Datetime, UNITS, ZONES),
    st.builds(pl.Duration, UNITS),
    DECIMALS,
    st.builds(pl.Enum, st.lists(WORDS, min_size=1, max_size=4, unique=True)),
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(pl.List, inner),
        st.builds(pl.Array, inner, st.integers(1, 9)),
        st.builds(pl.Struct, st.dictionaries(WORDS, inner, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@given(TYPES)
def test_what_polars_prints_of_a_type_names_that_type(dtype: pl.DataType) -> None:
    assert parse_type(str(dtype)) == dtype


def plain_form(dtype: pl.DataType) -> object:
    """Return a type as a flow file may write it: structs as mappings, lists of one."""
    if isinstance(dtype, pl.Struct):
        return {field.name: plain_form(field.dtype) for field in dtype.fields}  # type: ignore[arg-type]
    if isinstance(dtype, pl.List):
        return [plain_form(dtype.inner)]  # type: ignore[arg-type]
    return str(dtype)


@given(TYPES)
def test_structs_may_be_mappings_and_lists_may_be_lists(dtype: pl.DataType) -> None:
    assert parse_schema({"column": plain_form(dtype)}) == {"column": dtype}


@pytest.mark.parametrize("form", TYPE_FORMS)
def test_every_form_that_errors_show_is_understood(form: str) -> None:
    name, bracket, rest = form.partition("(")
    assert parse_type(form) == parse_type(name.lower() + bracket + rest) == parse_type(str(parse_type(form)))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("int64", pl.Int64()),
        ("long", pl.Int64()),
        ("Datetime", pl.Datetime("us")),
        ("datetime[ms]", pl.Datetime("ms")),
        ("Datetime(us, UTC)", pl.Datetime("us", "UTC")),
        ("Decimal(18, 2)", pl.Decimal(18, 2)),
        ("Decimal(38)", pl.Decimal(38, 0)),
        ("List(List(Int32))", pl.List(pl.List(pl.Int32()))),
        ("Duration(ms)", pl.Duration("ms")),
        ("Array(Float64, 3)", pl.Array(pl.Float64(), 3)),
        ('Enum(low, "very, very high")', pl.Enum(["low", "very, very high"])),
        (
            "Struct(lat: Float64, at: Datetime(ms, UTC))",
            pl.Struct({"lat": pl.Float64(), "at": pl.Datetime("ms", "UTC")}),
        ),
        ("List(Struct(n: List(int)))", pl.List(pl.Struct({"n": pl.List(pl.Int64())}))),
    ],
)
def test_types_are_written_as_polars_prints_them_or_as_people_say(text: str, dtype: pl.DataType) -> None:
    assert parse_type(text) == dtype
    assert normalise_schema({"column": text}) == parse_schema({"column": text}) == {"column": dtype}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Int65", r"unknown type 'Int65'; did you mean 'Int64'\?"),
        ("Datetime(us, Europe/Atlantis)", r"there is no time zone 'Europe/Atlantis'"),
        ("Datetime(days)", r"its unit is 'days'; units are ms, us, ns"),
        ("Datetime(us, UTC, 3)", r"give a unit and, if need be, a zone"),
        ("Duration()", r"give its unit"),
        ("Decimal(39, 2)", r"1 to 38 digits"),
        ("Decimal(3, 4)", r"at most as many behind the point"),
        ("Decimal(a)", r"give its digits"),
        ("List(Int64, Int64)", r"give the type of its values"),
        ("List(Wrong)", r"unknown type 'Wrong'"),
        ("Array(Float64)", r"how many there are"),
        ("Enum()", r"give its values"),
        ("Enum(a, a)", r"must be unique"),
        ("Struct(lat)", r"give its fields with their types"),
        ("Struct(a: Int64, a: Int64)", r"each once"),
        ("Struct()", r"it has no fields"),
    ],
)
def test_wrong_types_say_what_is_wrong_and_what_to_write(text: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        parse_type(text)
    with pytest.raises(FlowError, match=rf"column 'x\.y': .*{message}"):
        parse_schema({"x": {"y": text}})


def test_what_is_neither_a_name_nor_fields_is_no_type() -> None:
    for wrong in (5, None, [], ["Int64", "Int64"], {}):
        with pytest.raises(FlowError, match=r"column 'x': .* is no type"):
            parse_schema({"x": wrong})
