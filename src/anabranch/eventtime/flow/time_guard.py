"""Where times come in that no stream may hold: from a source, a table or an expression."""

from __future__ import annotations

from anabranch.eventtime.time_range import TIME_TYPES
from anabranch.model.column_kinds import holds
from anabranch.query.nodes import Filter, LateRows, Node, Output, Select, Union, Watermark, WithColumns

_LET_THROUGH = (Filter, Union, Watermark, LateRows, Output)
"""Operations that make no values of their own."""


def columns_with_new_times(node: Node) -> tuple[str, ...]:
    """Return the columns in which a node may make times that nobody has looked at yet."""
    if isinstance(node.operation, _LET_THROUGH):
        return ()
    made = _made_columns(node.operation) if isinstance(node.operation, Select | WithColumns) else None
    return tuple(
        column for column, kind in node.schema.items() if holds(kind, *TIME_TYPES) and (made is None or column in made)
    )


def _made_columns(operation: Select | WithColumns) -> set[str] | None:
    """Return the columns that are computed, not only passed on; None if that cannot be said."""
    made = set(operation.named)
    for expression in operation.positional:
        if isinstance(expression, str):
            return None
        if not expression.meta.is_column():
            name = expression.meta.output_name(raise_if_undetermined=False)
            if name is None or expression.meta.has_multiple_outputs():
                return None
            made.add(name)
    return made
