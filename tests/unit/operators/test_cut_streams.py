"""Where a stream is cut into batches, and that all is opened anew between them, does not show in the results."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from property_tests import tries
from unit.operators.cut_streams import CUT_SPECS, Cut, check_cut, cuts, streams
from unit.operators.streams import Row

ROW_BY_ROW = Cut(tuple(range(40)), (1,), (True, False), (True,))
ROWS = [Row(at % 3, at // 2 - at % 2, at % 7, at / 4) for at in range(25)]


@tries(12)
@given(name=st.sampled_from(list(CUT_SPECS)), rows=streams(), cut=cuts())
@example(name="tumbling", rows=ROWS, cut=ROW_BY_ROW)
@example(name="session", rows=ROWS, cut=ROW_BY_ROW)
@example(name="running", rows=ROWS, cut=ROW_BY_ROW)
@example(name="distinct", rows=ROWS, cut=ROW_BY_ROW)
@example(name="best so far", rows=ROWS, cut=ROW_BY_ROW)
@example(name="windows by key", rows=ROWS, cut=ROW_BY_ROW)
@example(name="count windows", rows=ROWS, cut=ROW_BY_ROW)
@example(name="processor in order", rows=ROWS, cut=ROW_BY_ROW)
@example(name="windows by group", rows=ROWS, cut=ROW_BY_ROW)
@example(name="in order", rows=ROWS, cut=ROW_BY_ROW)
def test_results_do_not_depend_on_where_a_stream_is_cut(name: str, rows: list[Row], cut: Cut) -> None:
    check_cut(CUT_SPECS[name], rows, cut)
