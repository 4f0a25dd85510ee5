"""State that is changed in place, at any depth, is kept as a plain Python object would be, however rows are cut."""

from __future__ import annotations

import heapq
import json
import pickle
import tempfile
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FlowError
from anabranch.model import HASH, Clock, OperatorTime, ProcessSpec, RunRef
from anabranch.operators.kernels import make_kernel
from anabranch.operators.processors.declared_state import KeyState, changes_of, listed, mapped, value
from anabranch.operators.processors.processor import FrameProcessor, Processor
from anabranch.operators.processors.processor_batch import build_column
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.slots import RunsOfSlot
from anabranch.state.store import open_store
from property_tests import tries
from unit.operators.streams import SCHEMA, Row, to_frame

OUTPUT: dict[str, pl.DataType] = {"key": pl.Int64(), "text": pl.String()}
HIT = pl.Struct({"n": pl.Int64(), "tags": pl.List(pl.String()), "at": pl.Struct({"x": pl.Float64()})})
PAIRS = pl.List(pl.Struct({"key": pl.String(), "value": pl.Int64()}))
START: dict[str, Any] = {"n": 0, "tags": [], "at": {"x": 0.0}}


def cut(rows: Sequence[Row], ends: Sequence[int]) -> list[Sequence[Row]]:
    """Return the rows in batches that end there."""
    edges = [0, *sorted(ends), len(rows)]
    return [rows[begin:end] for begin, end in pairwise(edges) if begin < end]


def run(processor: Any, batches: Sequence[Sequence[Row]], output: Any = None) -> list[dict[str, Any]]:
    """Return what a processor emits; between two batches nothing is left but the files of its slot."""
    runs: list[str] = []
    emitted = []
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(batches):
            kernel = make_kernel(ProcessSpec(("key",), processor(), SCHEMA, output or OUTPUT, None, Clock()))
            files = RunFiles(open_store(folder), "state/0/0", WriteName(1, number, 0, "x"))
            state, at = RunsOfSlot([RunRef.from_json(run) for run in runs], files, files), OperatorTime(number)
            prepared = kernel.prepare(to_frame(list(enumerate(rows))), at).frame
            hashed = prepared.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))
            fired = kernel.advance([hashed], False, state, at)
            runs = [run.to_json() for run in state.runs()]
            emitted += fired.frame.to_dicts()
    return emitted


# -- each way in which a change was lost ------------------------------------------------------------------------------


def thirty_rows() -> list[Row]:
    return [Row(1, second) for second in range(30)]


@pytest.mark.parametrize("size", [30, 10, 1])
def test_a_struct_in_a_map_that_is_changed_in_place_counts_every_row_however_they_are_cut(size: int) -> None:
    class Counts(Processor):
        m = mapped(pl.String(), pl.Struct({"n": pl.Int64()}))

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            if "x" not in state.m:
                state.m["x"] = {"n": 0}
            state.m["x"]["n"] += 1
            yield {"text": str(state.m["x"]["n"])}

    emitted = run(Counts, cut(thirty_rows(), range(size, 30, size)))
    assert [row["text"] for row in emitted] == [str(number) for number in range(1, 31)]


@pytest.mark.parametrize("size", [30, 10, 1])
def test_what_setdefault_returns_is_what_is_stored(size: int) -> None:
    class Gathers(Processor):
        m = mapped(pl.String(), pl.List(pl.Int64()))

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            state.m.setdefault("a", []).append(7)
            yield {"text": str(len(state.m["a"]))}

    emitted = run(Gathers, cut(thirty_rows(), range(size, 30, size)))
    assert emitted[-1]["text"] == "30"


@pytest.mark.parametrize("ends", [(), (1, 2)])
def test_an_emitted_list_is_what_it_was_when_it_was_emitted(ends: Sequence[int]) -> None:
    class Emits(Processor):
        seen = listed(pl.Int64())
        m = mapped(pl.String(), pl.List(pl.Int64()))

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            state.seen.append(row["whole"])
            state.m.setdefault("a", []).append(row["whole"])
            yield {"seen": state.seen, "pair": {"of": state.m["a"]}}
            state.seen.append(-1)

    output = {"key": pl.Int64(), "seen": pl.List(pl.Int64()), "pair": pl.Struct({"of": pl.List(pl.Int64())})}
    emitted = run(Emits, cut([Row(1, at, at) for at in range(3)], ends), output)
    assert [row["seen"] for row in emitted] == [[0], [0, -1, 1], [0, -1, 1, -1, 2]]
    assert [row["pair"]["of"] for row in emitted] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("ends", [(), (1,)])
def test_a_number_that_is_put_into_a_struct_in_place_reads_at_once_as_it_is_stored(ends: Sequence[int]) -> None:
    class Rounds(Processor):
        point = value(pl.Struct({"x": pl.Float32(), "at": pl.Datetime("us")}), default={"x": 0.0, "at": None})

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            yield {"text": f"{state.point['x']} {state.point['at']}"}
            state.point["x"] = 0.1
            state.point["at"] = datetime(2026, 1, 1, 12, tzinfo=UTC)

    emitted = run(Rounds, cut([Row(1, at) for at in range(2)], ends))
    assert [row["text"] for row in emitted] == ["0.0 None", "0.10000000149011612 2026-01-01 12:00:00"]


@pytest.mark.parametrize("ends", [(), (1,)])
def test_what_is_taken_out_of_a_struct_leaves_null_at_once(ends: Sequence[int]) -> None:
    class Takes(Processor):
        point = value(pl.Struct({"x": pl.Int64(), "y": pl.Int64()}), default={"x": 1, "y": 2})

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            yield {"text": str(dict(state.point))}
            taken = state.point.pop("x")
            del state.point["y"]
            yield {"text": f"{taken} {dict(state.point)}"}

    texts = [row["text"] for row in run(Takes, cut([Row(1, at) for at in range(2)], ends))]
    nothing = "{'x': None, 'y': None}"
    assert texts == ["{'x': 1, 'y': 2}", f"1 {nothing}", nothing, f"None {nothing}"]


def test_a_default_that_is_changed_in_place_stays_with_its_key() -> None:
    class Shares(Processor):
        point = value(HIT, default=START)

        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            state.point["tags"].append(str(row["key"]))
            state.point["at"]["x"] += 1.0
            yield {"text": json.dumps(deepcopy(state.point))}

    emitted = run(Shares, [[Row(1, 0), Row(2, 1), Row(1, 2), Row(3, 3)]])
    seen = {row["key"]: json.loads(row["text"]) for row in emitted}
    assert seen[1] == {"n": 0, "tags": ["1", "1"], "at": {"x": 2.0}}
    assert seen[2] == {"n": 0, "tags": ["2"], "at": {"x": 1.0}}
    assert START == {"n": 0, "tags": [], "at": {"x": 0.0}}


def test_a_processor_that_does_as_it_likes_with_a_timers_key_emits_the_key_all_the_same() -> None:
    class Careless(Processor):
        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            timers.at_processing(timers.now)

        def on_timer(self, timer: Any, state: Any, timers: Any) -> Any:
            timer.key["key"] = 99
            yield {"text": "x"}

    assert run(Careless, [[Row(1, 0)]]) == [{"key": 1, "text": "x"}]


def test_a_frame_of_state_that_is_changed_in_place_counts_only_if_it_is_returned() -> None:
    class Frames(FrameProcessor):
        count = value(pl.Int64(), default=0)

        def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: Any) -> Any:
            told = state.select("key", text=pl.col("count").cast(pl.String))
            state[0, "count"] = int(state[0, "count"]) + 1
            state.insert_column(0, pl.Series("more", [0]))
            return told, state.drop("more") if frame["whole"][0] else None

    rows = [Row(1, at, whole) for at, whole in enumerate([0, 1, 0, 1, 1])]
    assert [row["text"] for row in run(Frames, [[row] for row in rows])] == ["0", "0", "1", "1", "2"]


# -- what a held list, map or struct is -------------------------------------------------------------------------------


class Kept(Processor):
    hits = listed(HIT)
    grid = listed(pl.List(pl.Int64()))
    m = mapped(pl.String(), HIT)
    pairs = mapped(pl.Int64(), PAIRS)
    point = value(HIT, default=START)
    three = value(pl.Array(pl.Int64(), 3), default=[3, 1, 2])
    days = mapped(pl.Datetime("us"), pl.Int64())


def fresh() -> Any:
    return KeyState(Kept.state_fields, dict.fromkeys(Kept.state_fields))


def test_looking_deep_into_a_field_changes_nothing() -> None:
    state: Any = KeyState(
        Kept.state_fields,
        dict.fromkeys(Kept.state_fields) | {"hits": [deepcopy(START)], "m": [{"key": "a", "value": deepcopy(START)}]},
    )
    assert state.hits[0]["tags"] == [] and state.m["a"]["at"]["x"] == 0.0 and state.three[0] == 3
    assert [*state.hits, *state.m.values()] == [START, START] and state.m.get("b") is None
    assert changes_of(state) == {}


def test_what_is_put_in_is_a_copy() -> None:
    state = fresh()
    mine = deepcopy(START)
    state.hits.append(mine)
    state.m["a"] = state.hits[0]
    mine["n"] = 5
    state.hits[0]["n"] = 7
    assert (state.hits[0]["n"], state.m["a"]["n"]) == (7, 0)


def test_adding_to_a_field_in_place_keeps_what_was_handed_out_before() -> None:
    state = fresh()
    grid = state.grid
    state.grid += [[1]]
    grid.append([2])
    assert changes_of(state) == {"grid": [[1], [2]]}


def test_a_key_of_a_map_is_found_as_it_was_given() -> None:
    state = fresh()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    state.days[noon] = 1
    state.days.setdefault(noon, 5)
    assert noon in state.days and state.days[noon] == 1 and list(state.days) == [datetime(2026, 1, 1, 12)]
    del state.days[noon]
    assert "x" not in state.days and not state.days


def test_plain_copies_are_plain() -> None:
    state = fresh()
    state.m["a"] = START
    state.grid = [[1], [2]]
    assert json.loads(json.dumps(deepcopy(state.m))) == {"a": START}
    assert type(pickle.loads(pickle.dumps(state.grid))) is list
    assert type(copy(state.m["a"])) is dict and type(state.grid[0].copy()) is list
    with pytest.raises(TypeError, match="must be list, not HeldList"):
        heapq.heappush(state.grid, [0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.point.update(n=1.5), r"state\.point: 1\.5 \(float\) does not fit Int64"),
        (lambda s: s.point["tags"].append(1), r"state\.point: 1 \(int\) does not fit String"),
        (lambda s: s.point.setdefault("other", 1), r"state\.point: 'other' is no field of the struct; it has n, tags"),
        (lambda s: s.point.popitem(), r"state\.point: a struct keeps its fields"),
        (lambda s: s.hits.append({"n": 1.5}), r"state\.hits: 1\.5 \(float\) does not fit Int64"),
        (lambda s: s.hits.append({"m": 1}), r"state\.hits: .* does not fit Struct.* no field 'm'"),
        (lambda s: s.hits.append([1]), r"state\.hits: \[1\] \(list\) does not fit Struct"),
        (lambda s: s.grid.append("12"), r"state\.grid: '12' \(str\) does not fit List"),
        (lambda s: s.m.setdefault("a", {"tags": "ab"}), r"state\.m: 'ab' \(str\) does not fit List"),
        (lambda s: s.three.append(1), r"state\.three: an array has 3 values"),
        (lambda s: s.three.__setitem__(slice(0, 2), [1]), r"state\.three: an array has 3 values"),
        (lambda s: s.three.pop(), r"state\.three: an array has 3 values"),
        (lambda s: setattr(s, "three", [1]), r"state\.three: \[1\] \(list\) does not fit Array"),
    ],
)
def test_what_does_not_fit_is_refused_at_every_depth_and_nothing_is_changed(change: Any, words: str) -> None:
    state = fresh()
    with pytest.raises(TypeError, match=words):
        change(state)
    assert deepcopy(state.point) == START and list(state.three) == [3, 1, 2] and not state.hits and not state.m


@pytest.mark.parametrize(
    ("dtype", "wrong"),
    [(pl.Int64(), 1.5), (pl.Decimal(5, 2), Decimal("1E+9")), (pl.Enum(["a"]), "b")],
)
def test_a_struct_that_does_not_fit_is_not_emitted(dtype: pl.DataType, wrong: Any) -> None:
    class Emits(Processor):
        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            yield {"point": {"x": wrong}}

    with pytest.raises(FlowError, match=r"Emits: on_time for key=1: .*output column 'point': .* does not fit"):
        run(Emits, [[Row(1, 0)]], {"key": pl.Int64(), "point": pl.Struct({"x": dtype})})


# -- in every way a Python programmer would ---------------------------------------------------------------------------


def hit(n: int) -> dict[str, Any]:
    return {"n": n, "tags": [f"t{n}"], "at": {"x": n / 4}}


def take_first(items: Any) -> Any:
    return next(iter(items), None)


def change_slice(state: Any, n: int) -> None:
    state.grid[1:3] = [[n], [n, n]]


def add_to_slice(state: Any, n: int) -> None:
    for row in state.grid[:2]:
        row.append(n)


def add_to_values(state: Any, n: int) -> None:
    for kept in state.m.values():
        kept["n"] += n


def add_to_items(state: Any, n: int) -> None:
    for name, kept in state.m.items():
        kept["tags"].append(name)


def move(state: Any, n: int) -> None:
    if state.hits:
        state.m[f"k{n % 3}"] = state.hits.pop(n % len(state.hits))


def copy_over(state: Any, n: int) -> None:
    if state.m:
        # Twice the same in Python would be one object; what is put into state is a copy.
        state.hits.append(deepcopy(take_first(state.m.values())))


def sum_up(state: Any, n: int) -> None:
    kept = state.point
    kept["n"] += sum(entry["n"] or 0 for entry in state.hits) + len(state.grid)
    kept["at"]["x"] *= -1.0


def swap(state: Any, n: int) -> None:
    if len(state.grid) > 1:
        first = list(state.grid[0])
        state.grid[0] = state.grid[-1]
        state.grid[-1] = first
        if state.grid[0] is state.grid[-1]:
            raise AssertionError


def update_pairs(state: Any, n: int) -> None:
    pairs = state.pairs.setdefault(n % 2, [])
    found = next((pair for pair in pairs if pair["key"] == f"k{n}"), None)
    if found is None:
        pairs.append({"key": f"k{n}", "value": 1})
    else:
        found["value"] += 1


def nested_augmented(state: Any, n: int) -> None:
    if "a" in state.m:
        state.m["a"]["tags"] += ["more"]
        state.m["a"]["at"] |= {"x": float(n)}
        state.m["a"]["n"] -= 1


def let_go(state: Any, n: int) -> None:
    if state.hits:
        gone = state.hits.pop()
        gone["n"] = 10**6
        gone["tags"].clear()


CHANGES: tuple[Callable[[Any, int], Any], ...] = (
    lambda s, n: s.hits.append(hit(n)),
    lambda s, n: s.hits.insert(0, hit(n)),
    lambda s, n: s.hits.extend([hit(n), hit(n + 1)]),
    lambda s, n: s.hits and s.hits[n % len(s.hits)].update(n=n),
    lambda s, n: s.hits and s.hits[-1]["tags"].append("late"),
    lambda s, n: s.hits and s.hits[-1]["at"].__setitem__("x", n / 8),
    lambda s, n: s.hits.sort(key=lambda entry: (entry["n"], entry["tags"]), reverse=n % 2 == 0),
    lambda s, n: s.hits.reverse(),
    lambda s, n: s.hits.__delitem__(slice(n % 3, None, 2)),
    lambda s, n: s.hits.remove(take_first(s.hits)) if s.hits else None,
    lambda s, n: s.grid.append([n, n + 1]),
    lambda s, n: s.grid and s.grid[0].insert(0, n),
    lambda s, n: s.grid and s.grid[-1].sort(),
    lambda s, n: s.grid.sort(),
    lambda s, n: s.grid and s.grid[0].__imul__(2),
    lambda s, n: s.grid and s.grid[-1].pop() if s.grid and s.grid[-1] else None,
    lambda s, n: s.grid.clear() if n % 4 == 0 else None,
    lambda s, n: s.m.setdefault("ab"[n % 2], hit(n))["tags"].append("set"),
    lambda s, n: s.m.pop("a", None),
    lambda s, n: s.m.update(b=hit(n)),
    lambda s, n: s.m.get("b", hit(0)).update(n=n),
    lambda s, n: s.pairs.pop(n % 2, None),
    lambda s, n: s.point.update(hit(n)),
    lambda s, n: s.point["tags"].extend(["x", "y"]),
    lambda s, n: s.three.sort(),
    lambda s, n: s.three.__setitem__(n % 3, n),
    lambda s, n: s.three.__setitem__(slice(None), [n, 0, 1]),
    lambda s, n: setattr(s, "hits", s.hits[:5]),
    lambda s, n: setattr(s, "grid", [list(row)[:4] for row in s.grid][:4]),
    lambda s, n: setattr(s, "point", {**s.point, "n": n}),
    change_slice,
    add_to_slice,
    add_to_values,
    add_to_items,
    move,
    copy_over,
    sum_up,
    swap,
    update_pairs,
    nested_augmented,
    let_go,
)


def tell(state: Any) -> str:
    fields = {name: getattr(state, name) for name in Kept.state_fields if name != "days"}
    return json.dumps(deepcopy(fields))


class InPlace(Kept):
    """Does with its state what each row says, and tells what it is then."""

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        CHANGES[row["whole"] % len(CHANGES)](state, row["whole"] // len(CHANGES))
        yield {"text": tell(state)}


def twin() -> SimpleNamespace:
    return SimpleNamespace(hits=[], grid=[], m={}, pairs={}, point=deepcopy(START), three=[3, 1, 2])


rows_of_changes = st.lists(
    st.builds(Row, key=st.integers(0, 1), seconds=st.just(0), whole=st.integers(0, 12 * len(CHANGES))), max_size=40
)


@tries(60)
@given(rows=rows_of_changes, ends=st.lists(st.integers(0, 40), max_size=8))
def test_state_changed_in_place_is_as_that_of_plain_objects_however_rows_are_cut(
    rows: list[Row], ends: list[int]
) -> None:
    check_against_plain_objects(rows, ends)


def check_against_plain_objects(rows: list[Row], ends: list[int]) -> None:
    expected: dict[int, list[str]] = {}
    states: dict[int, Any] = {}
    for row in rows:
        assert row.whole is not None
        state = states.setdefault(row.key, twin())
        CHANGES[row.whole % len(CHANGES)](state, row.whole // len(CHANGES))
        for name in ("hits", "grid"):
            # What is put into state is a copy: no two places of it are one object.
            setattr(state, name, [deepcopy(item) for item in getattr(state, name)])
        expected.setdefault(row.key, []).append(tell(state))
    found: dict[int, list[str]] = {}
    for emitted in run(InPlace, cut(rows, [min(end, len(rows)) for end in ends])):
        found.setdefault(emitted["key"], []).append(emitted["text"])
    assert found == expected


# -- every type, nested in every way ----------------------------------------------------------------------------------


class Colour(str, Enum):  # noqa: UP042 - its text is not its value
    RED = "red"


_MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_SCALARS: list[tuple[pl.DataType, st.SearchStrategy[Any]]] = [
    (pl.Int8(), st.integers(-128, 127)),
    (pl.Int64(), st.sampled_from([-(2**63), 2**63 - 1, 0]) | st.integers(-5, 5)),
    (pl.UInt64(), st.sampled_from([2**64 - 1, 2**63, 0])),
    (pl.Int128(), st.sampled_from([-(2**127), 2**127 - 1, 2**64])),
    (pl.Float64(), st.floats(allow_nan=False) | st.integers(-(10**20), 10**20)),
    (pl.Float32(), st.floats(allow_nan=False, width=32) | st.sampled_from([0.1, -0.0])),
    (pl.String(), st.text(max_size=4) | st.just(Colour.RED)),
    (pl.Binary(), st.binary(max_size=4)),
    (pl.Boolean(), st.booleans()),
    (pl.Date(), st.dates()),
    (pl.Time(), st.times()),
    (pl.Datetime("us"), _MOMENTS | st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2))),
    (pl.Datetime("ms"), _MOMENTS),
    (pl.Datetime("us", "UTC"), st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2))),
    (pl.Datetime("ns"), st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1))),
    (pl.Duration("us"), st.timedeltas(timedelta(days=-(10**5)), timedelta(days=10**5))),
    (pl.Duration("ms"), st.timedeltas(timedelta(days=-(10**5)), timedelta(days=10**5))),
    (
        pl.Decimal(10, 2),
        st.decimals(-(10**7), 10**7, places=2)
        | st.integers(-5, 5).map(Decimal)
        | st.sampled_from([Decimal("-0.00"), Decimal("0E+3"), Decimal("1E+2"), Decimal("0.005")]),
    ),
    (pl.Decimal(38, 0), st.sampled_from([Decimal(10**38 - 1), Decimal(1 - 10**38)])),
    (pl.Enum(["a", "b"]), st.sampled_from("ab")),
]
Typed = tuple[pl.DataType, st.SearchStrategy[Any]]


def in_list(typed: Typed) -> Typed:
    dtype, values = typed
    return pl.List(dtype), st.lists(st.none() | values, max_size=3)


def in_array(typed: Typed) -> Typed:
    dtype, values = typed
    return pl.Array(dtype, 2), st.tuples(st.none() | values, values)


def in_struct(parts: list[Typed]) -> Typed:
    fields = {f"f{number}": dtype for number, (dtype, _) in enumerate(parts)}
    optional = {f"f{number}": st.none() | values for number, (_, values) in enumerate(parts)}
    return pl.Struct(fields), st.fixed_dictionaries({}, optional=optional)


types = st.recursive(
    st.sampled_from(_SCALARS),
    lambda inner: inner.map(in_list) | inner.map(in_array) | st.lists(inner, min_size=1, max_size=3).map(in_struct),
    max_leaves=5,
)


@tries(150)
@given(typed=types, data=st.data())
def test_a_value_of_any_type_reads_at_once_as_it_will_after_it_was_stored(typed: Typed, data: st.DataObject) -> None:
    check_that_it_reads_as_stored(typed, data)


def check_that_it_reads_as_stored(typed: Typed, data: st.DataObject) -> None:
    dtype, values = typed

    class Any_(Processor):
        items = listed(dtype)
        entries = mapped(pl.Int64(), dtype)
        if not isinstance(dtype, pl.List):
            single = value(dtype)

    state: Any = KeyState(Any_.state_fields, dict.fromkeys(Any_.state_fields))
    state.items.extend(data.draw(st.lists(values, min_size=1, max_size=3)))
    state.entries[1] = data.draw(values)
    if "single" in Any_.state_fields:
        state.single = data.draw(values)
    at_once = {name: deepcopy(getattr(state, name)) for name in Any_.state_fields}
    columns = [pl.Series(HASH, [0], dtype=pl.UInt64)]
    for name, kept in changes_of(state).items():
        column = build_column(name, [kept], Any_.state_fields[name].stored_type)
        assert column is not None, (name, kept)
        columns.append(column)
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(open_store(folder), "state/0/0", WriteName(1, 0, 0, "x"))
        read_again = files.read(RunRef.from_json(files.write(pl.DataFrame(columns)).to_json()))
        later: Any = KeyState(Any_.state_fields, read_again.to_dicts()[0])
    read = {name: deepcopy(getattr(later, name)) for name in Any_.state_fields}
    assert repr(read) == repr(at_once)


class Timestamp(datetime):
    """A class of another library below Python's own."""


@pytest.mark.parametrize(
    ("dtype", "given_value", "read"),
    [
        (pl.String(), Colour.RED, "red"),
        (pl.Datetime("us"), Timestamp(2026, 1, 1, 12, fold=1), datetime(2026, 1, 1, 12)),
        (pl.Date(), type("Day", (date,), {})(2026, 1, 1), date(2026, 1, 1)),
        (pl.Binary(), type("Bytes", (bytes,), {})(b"x"), b"x"),
        (pl.Time(), time(1, 2, 3), time(1, 2, 3)),
    ],
)
def test_what_is_of_a_class_below_pythons_own_reads_as_pythons_at_once(dtype: Any, given_value: Any, read: Any) -> None:
    class One(Processor):
        one = value(dtype)

    state: Any = KeyState(One.state_fields, {"one": None})
    state.one = given_value
    assert type(state.one) is type(read) and repr(state.one) == repr(read)
