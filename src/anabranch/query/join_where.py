"""What ``join_where()`` is told: a predicate over columns of both streams, and what rows can be searched by in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from anabranch.errors import FlowError, name_alternatives
from anabranch.model.balance import AUTO, Routing
from anabranch.model.joins import LEFT, RIGHT, Band
from anabranch.query.joining import (
    JoinKeys,
    JoinTerms,
    Where,
    columns_of,
    join_streams,
    name_right_columns,
)
from anabranch.query.nodes import Expression, describe
from anabranch.query.predicates import find_band, find_equal_columns, split_conjuncts
from anabranch.routing.routes import MOST_NEAR_KEYS
from anabranch.routing.strategies.by_name import goes_by_keys, make_strategy, strategy_names

if TYPE_CHECKING:
    from anabranch.query.streams import Stream

_GRID, _FITS = "grid", "__fits"
_STEPS = (1, 3, 7, 4, 9, 2, 5)
"""By which columns of pairs that a predicate is tried on are in different orders."""


def join_where(
    left: Stream, right: Stream, predicate: Expression | None, terms: JoinTerms, routing: Routing, name: str
) -> Stream:
    """Return the pairs of rows of two streams that fulfil a predicate, or all pairs."""
    names = columns_of(left)
    right_names = name_right_columns(columns_of(right), names, terms.suffix)
    schema = {name: left.schema[name] for name in names} | {
        shown: right.schema[own] for shown, own in right_names.items()
    }
    conditions = [] if predicate is None else split_conjuncts(_read_predicate(predicate, schema))
    sides = (names, list(right_names))
    is_bounded = terms.within is not None or terms.window is not None or terms.ttl is not None
    keys, rest = _take_keys(conditions, sides, schema)
    band, near = None, False
    if not keys[LEFT]:
        band = find_band(conditions, sides, schema)
        if band is not None and is_bounded and not band.is_closed:
            # Time is bounded on both sides.
            band = None
        near_keys = _find_near_keys(band, schema)
        near = near_keys is not None and _goes_by_keys(routing)
        keys = near_keys if near_keys is not None and near else keys
        routing = routing if near else _find_routing(routing)
    own_keys = (keys[LEFT], tuple(right_names[key] for key in keys[RIGHT]))
    filtered = pl.all_horizontal(rest) if rest else None
    text = "anything" if predicate is None else describe(predicate)
    return join_streams(left, right, own_keys, terms, routing, name, Where(filtered, band, text, near))


def _read_predicate(predicate: object, schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return a predicate as an expression, or raise ``FlowError`` that says why pairs cannot be held against it."""
    try:
        read = pl.sql_expr(predicate) if isinstance(predicate, str) else predicate
    except pl.exceptions.PolarsError as error:
        msg = f"join_where: {predicate!r} is no SQL expression: {error}"
        raise FlowError(msg) from error
    if not isinstance(read, pl.Expr):
        msg = f"join_where: the predicate is a Polars expression or SQL, found a {type(read).__name__}"
        raise FlowError(msg)
    text = predicate if isinstance(predicate, str) else describe(read)
    missing = [name for name in read.meta.root_names() if name not in schema]
    if missing:
        msg = (
            f"join_where: no column {missing[0]!r} in either stream; {name_alternatives(missing[0], schema)}; "
            "columns of the right stream that the left one has, too, get the suffix"
        )
        raise FlowError(msg)
    try:
        (dtype,) = pl.DataFrame(schema=dict(schema)).select(read.alias(_FITS)).dtypes
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        msg = f"join_where: {text} cannot be computed: {error}"
        raise FlowError(msg) from error
    if not read.meta.root_names() or not _looks_at_each_pair(read, schema):
        msg = (
            f"join_where: {text} does not look at each pair for itself; compare columns of both "
            "streams, or leave the predicate out for all pairs"
        )
        raise FlowError(msg)
    if dtype != pl.Boolean:
        msg = f"join_where: {text} is {dtype}; a predicate is true or false"
        raise FlowError(msg)
    return read


def _looks_at_each_pair(predicate: pl.Expr, schema: Mapping[str, pl.DataType]) -> bool:
    """Say whether a predicate says the same of pairs whatever others there are, as far as some pairs show it."""
    numbers = {
        name: [(place * _STEPS[number % len(_STEPS)] + number) % 11 for place in range(11)]
        for number, name in enumerate(schema)
    }
    known = [name for name, dtype in schema.items() if dtype.is_numeric() or dtype.is_temporal() or dtype == pl.String]
    pairs = pl.DataFrame(numbers).with_columns(
        (pl.col(name) if name in known else pl.lit(None)).cast(dtype, strict=False).alias(name)
        for name, dtype in schema.items()
    )
    alone = [pairs[place].select(predicate.alias(_FITS)) for place in range(pairs.height)]
    return pl.concat(alone).equals(pairs.select(predicate.alias(_FITS)))


def _take_keys(
    conditions: Sequence[pl.Expr], sides: tuple[Sequence[str], Sequence[str]], schema: Mapping[str, pl.DataType]
) -> tuple[JoinKeys, list[pl.Expr]]:
    """Return the columns that must be equal, as results call them, and the conditions that are left."""
    keys: list[tuple[str, str]] = []
    taken = set()
    for place, left, right in find_equal_columns(conditions, sides):
        can_be_keys = not schema[left].is_float() and not schema[left].is_nested() and schema[left] == schema[right]
        if can_be_keys and left not in {known for known, _ in keys}:
            keys.append((left, right))
            taken.add(place)
    rest = [condition for place, condition in enumerate(conditions) if place not in taken]
    return (tuple(left for left, _ in keys), tuple(right for _, right in keys)), rest


def _find_near_keys(band: Band | None, schema: Mapping[str, pl.DataType]) -> JoinKeys | None:
    """Return the columns of a band as keys, if they are integers of one type, and few of them are near each other."""
    if band is None or band.least is None or band.most is None or not (-1 <= band.most - band.least < MOST_NEAR_KEYS):
        return None
    if not (band.left.meta.is_column() and band.right.meta.is_column()):
        return None
    left, right = band.left.meta.output_name(), band.right.meta.output_name()
    is_fit = schema[left].is_integer() and schema[left] == schema[right]
    return ((left,), (right,)) if is_fit else None


def _goes_by_keys(routing: Routing) -> bool:
    return routing.strategy == AUTO or goes_by_keys(make_strategy(routing.strategy, **routing.options))


def _find_routing(routing: Routing) -> Routing:
    """Return where rows go that have no key to go by."""
    if routing.strategy == AUTO:
        return replace(routing, strategy=_GRID)
    if _goes_by_keys(routing):
        for_joins = [name for name in strategy_names(for_joins=True) if name not in strategy_names()]
        dealing = [name for name in for_joins if not goes_by_keys(make_strategy(name))]
        msg = (
            f"join_where: {routing.strategy} goes by keys, and the predicate says of no columns that they are equal, "
            f"or that they are integers near each other, {MOST_NEAR_KEYS} at most; there are {', '.join(dealing)}"
        )
        raise FlowError(msg)
    return routing
