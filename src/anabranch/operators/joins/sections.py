"""The state of a join: a section for the rows of each input, and one for which of them met somebody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.model import BEGINNING_OF_TIME, HASH, WINDOW, Clock, RunRef, SlotState
from anabranch.model.columns import SECTION
from anabranch.model.joins import AT, CLOCKS_SECTION, LEFT, JoinSpec
from anabranch.operators.joins.key_times import JoinClocks
from anabranch.operators.joins.results import Results
from anabranch.operators.joins.rows import FindOver, InputState, Layout, sort_fates

EQUI_JOIN, ASOF_JOIN = "join", "as-of join"
"""What a checkpoint calls the kinds of joins."""
COPIED = "copied"
"""What a checkpoint calls the input of which slots with near keys have copies; in the oldest there were no copies."""
NEAR = "near"
"""What a checkpoint calls by how much keys of right rows may be more than those of left ones, at least and at most.

It says on which slots right rows are; where a checkpoint is older than that, nobody knows.
"""

_is_clock = pl.col(SECTION) == CLOCKS_SECTION


class Sections:
    """All sections of a join. Where state crosses a border, they lie in one frame, whose rows say theirs."""

    def __init__(self, layouts: Sequence[Layout], clocks: JoinClocks | None = None) -> None:
        """``clocks``: those of keys, where each has its own time."""
        self._layouts = layouts
        self._clocks = clocks

    def open(self, state: SlotState, find_over: Sequence[FindOver | None] = (None, None)) -> list[InputState]:
        """Return what a slot has of each input, with what came to it from other slots."""
        self.part(state)
        return [
            InputState(layout, state.section(layout.rows_section), state.section(layout.fates_section), is_over)
            for layout, is_over in zip(self._layouts, find_over, strict=True)
        ]

    def unite(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return rows of any sections and slots in one frame."""
        if self._clocks is not None:
            of_keys = [rows.filter(_is_clock) for rows in frames]
            some = [rows.select(self._clocks.columns) for rows in of_keys if rows.height]
            frames = [rows.filter(~_is_clock) for rows in frames] + ([self._clocks.unite(some)] if some else [])
        rows = pl.concat(frames, how="diagonal")
        if WINDOW in rows.columns:
            # One of the sections may have no segments.
            rows = rows.with_columns(pl.col(WINDOW).fill_null(BEGINNING_OF_TIME))
        return rows.sort([name for name in (WINDOW, HASH, SECTION, AT) if name in rows.columns], maintain_order=True)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that wait for partners: which input they are of, keys, columns."""
        shown = []
        for side, layout in zip(("left", "right"), self._layouts, strict=True):
            columns = [name for name in layout.source.columns if name in stored.columns]
            rows = stored.filter(pl.col(SECTION) == layout.rows_section)
            shown.append(rows.with_columns(pl.lit(side).alias("input")).select("input", *layout.keys, *columns))
        return pl.concat(shown, how="diagonal")

    def part(self, state: SlotState) -> None:
        """Put rows that came in one frame, from another slot or from outside, into their sections."""
        sections = [
            (number, state.section(number), columns, unite)
            for layout in self._layouts
            for number, columns, unite in (
                (layout.rows_section, layout.columns, layout.unite),
                (layout.fates_section, layout.fate_columns, sort_fates),
            )
        ]
        clock_state = None if self._clocks is None else state.section(CLOCKS_SECTION)
        # Only now are runs that have a section not among these.
        mixed = state.live()
        if not mixed:
            return
        if self._clocks is not None and clock_state is not None:
            handed = [rows.filter(_is_clock) for rows in mixed]
            some = [rows.select(self._clocks.columns) for rows in handed if rows.height]
            if some:
                self._clocks.take_in(clock_state, some)
        for number, section, columns, unite in sections:
            parts = [rows.filter(pl.col(SECTION) == number) for rows in mixed]
            some = [rows.select(columns) for rows in parts if rows.height]
            if some:
                section.append(unite(some))
        state.replace(mixed[0].clear())


class JoinSections:
    """What all joins have in common: results of both inputs' columns, and state in sections."""

    def __init__(self, spec: JoinSpec, layouts: Sequence[Layout], clocks: JoinClocks | None = None) -> None:
        self.spec = spec
        self._sections = Sections(layouts, clocks)
        self._results = Results(spec)

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that the join emits."""
        return self._results.schema

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        return describe_join(self.spec)

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here."""
        state.adopt(handed)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of several slots in one frame."""
        return self._sections.unite(stored)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that wait for partners, or that others may ask for."""
        return self._sections.values(stored)


def describe_clock(clock: Clock) -> dict[str, object]:
    """Return what of the time of keys a checkpoint depends on."""
    return {"per": clock.per, "groups": None, "idle": clock.idle_us is not None}


def describe_join(spec: JoinSpec) -> dict[str, object]:
    """Return what a checkpoint depends on, as plain JSON data."""
    window = spec.window
    lengths = None
    if window is not None:
        lengths = {"kind": window.kind, "size_us": window.size_us, "slide_us": window.slide_us}
        lengths |= {"offset_us": window.offset_us}
    return {
        "kind": ASOF_JOIN if spec.newest else EQUI_JOIN,
        "how": spec.how,
        "within": None if spec.within is None else [spec.within.least_us, spec.within.most_us],
        "window": lengths,
        "keys": {key: str(spec.inputs[LEFT].schema[key]) for key in spec.keys},
        "inputs": [{name: str(source.schema[name]) for name in source.columns} for source in spec.inputs],
        **({"clock": describe_clock(spec.clock)} if spec.follows_own_time else {}),
        **({"draws": True} if spec.draws else {}),
        **({COPIED: "right", NEAR: list(spec.near_keys(LEFT))} if spec.near else {}),
        **({} if spec.band is None or spec.near else {"searched_by": [str(spec.band.left), str(spec.band.right)]}),
    }
