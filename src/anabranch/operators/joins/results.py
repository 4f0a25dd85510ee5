"""What comes out of a join: pairs, rows that met nobody, and the event time of both."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.partners import Places
from anabranch.model import WINDOW_END, WINDOW_START
from anabranch.model.joins import AT, JOINED_AT, LEFT, RIGHT, JoinSpec
from anabranch.operators.joins.rows import EARLIEST, Piece


class Results:
    """The results of one join: keys, columns of the left input, columns of the right one, time."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        left, right = spec.inputs
        shown = [left] if spec.how in ("semi", "anti") else [left, right]
        keys = {key: left.schema[key] for key in spec.keys if key in left.schema}
        columns = {name: source.schema[name] for source in shown for name in source.columns if name in source.schema}
        self._values: dict[str, pl.DataType] = keys | columns

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns of results."""
        return self._values | dict.fromkeys(self._time_columns, pl.Datetime("us"))

    def pair(self, left: Piece, left_places: Places, right: Piece, right_places: Places) -> pl.DataFrame:
        """Return pairs of rows, by their places; the time of a pair is the later one, unless it has its own."""
        inputs = self._spec.inputs
        columns = [
            *left.take([*self._spec.keys, *inputs[LEFT].columns], left_places).get_columns(),
            *right.take(list(inputs[RIGHT].columns), right_places).get_columns(),
        ]
        if self._time_columns:
            columns += self._times(np.maximum(left.at_us[left_places], right.at_us[right_places]))
        return pl.DataFrame(columns)

    def alone(self, rows: pl.DataFrame, hold_us: int) -> pl.DataFrame:
        """Return rows that met nobody; their time is the last moment at which a partner could have come."""
        at_us = rows.get_column(AT).to_numpy()
        if self._spec.window is None:
            at_us = np.maximum(at_us, at_us + hold_us - 1)
        missing = [pl.lit(None, dtype).alias(name) for name, dtype in self._values.items() if name not in rows.columns]
        return rows.with_columns(missing).with_columns(self._times(at_us)).select(list(self.schema))

    def once(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows that met their first partner; their time is the later of both."""
        at_us = np.maximum(rows.get_column(AT).to_numpy(), rows.get_column(EARLIEST).to_numpy())
        return rows.with_columns(self._times(at_us)).select(list(self.schema))

    @property
    def _time_columns(self) -> list[str]:
        if self._spec.time_column is None or self._spec.newest:
            # As of a row's time, the result has that time, which is among its columns.
            return []
        return [JOINED_AT] if self._spec.window is None else [WINDOW_START, WINDOW_END]

    def _times(self, at_us: NDArray[np.int64]) -> list[pl.Series]:
        window = self._spec.window
        times = [at_us] if window is None else [at_us, at_us + window.size_us]
        named = zip(self._time_columns, times, strict=False)
        return [pl.Series(name, times_us).cast(pl.Datetime("us")) for name, times_us in named]
