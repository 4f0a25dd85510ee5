"""One process, plain Python, one row at a time: what a flow must answer, batch by batch.

Nothing here knows how the engine works: no kernels, no slots, no runs. A flow is a list of operators in a row, fed
with batches whose extents are given; ``answer_flow`` returns what each batch emits and how many rows were late.
"""

from oracle.aggregates import compute
from oracle.comparing import assert_same_batches, assert_same_rows, rows_of
from oracle.flows import NEVER, Answer, answer_flow
from oracle.keyed import Distinct, Running
from oracle.rows import Placed, to_microseconds
from oracle.windows import Sessions, Windows

__all__ = [
    "NEVER",
    "Answer",
    "Distinct",
    "Placed",
    "Running",
    "Sessions",
    "Windows",
    "answer_flow",
    "assert_same_batches",
    "assert_same_rows",
    "compute",
    "rows_of",
    "to_microseconds",
]
