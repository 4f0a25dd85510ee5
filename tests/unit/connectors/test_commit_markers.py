"""What a place's mark decides, how servers are waited for, and what is shown of their addresses."""

from __future__ import annotations

import logging

import pytest

from anabranch.connectors.addresses import show_address
from anabranch.connectors.commit_markers import Mark, OnLoss, Place, Publication, claim, is_due, next_mark
from anabranch.connectors.databases.addresses import fill_in, read_address
from anabranch.connectors.retry import ServerAway, insist
from anabranch.connectors.sink_ownership import ResultsLost
from anabranch.errors import SinkError


def place(on_loss: OnLoss = "stop") -> Place:
    return Place("db t", "test", on_loss)


def mark(batch: int, *, flow: str = "test", epoch: int = 1, store: str = "s1") -> Mark:
    return Mark(flow, batch, epoch, store)


def test_a_new_flow_marks_the_place_and_a_known_one_leaves_it() -> None:
    made = claim(None, place(), None)
    assert made is not None
    assert (made.flow, made.batch) == ("test", -1)
    assert claim(made, place(), None) is None
    assert claim(mark(4), place(), 4) is None


def test_a_batch_that_was_committed_and_not_published_is_no_loss() -> None:
    assert claim(mark(3), place(), 4) is None
    assert is_due(mark(3), place(), Publication(4, 1), "s1")


def test_a_place_of_another_flow_is_refused_unless_it_holds_nothing() -> None:
    with pytest.raises(SinkError, match="of the flow 'other'"):
        claim(mark(0, flow="other"), place(), None)
    taken = claim(mark(-1, flow="other"), place(), None)
    assert taken is not None
    assert taken.flow == "test"


def test_a_place_that_is_behind_has_lost_results() -> None:
    with pytest.raises(SinkError, match="ends with batch 1, though batches up to 4 were committed"):
        claim(mark(1), place(), 4)
    assert claim(mark(1), place("republish"), 4) is None
    reset = claim(mark(1), place("ignore"), 4)
    assert reset is not None
    assert is_due(reset, place("ignore"), Publication(4, 1), reset.store)


def test_a_missing_mark_is_a_loss_only_where_it_cannot_be_a_new_sink() -> None:
    assert claim(None, place(), 4) is not None
    with pytest.raises(SinkError, match="has no mark"):
        claim(None, place(), 4, absence_is_loss=True)
    assert claim(None, place("republish"), 4, absence_is_loss=True) is None
    assert claim(None, place("ignore"), 4, absence_is_loss=True) is not None


def test_batches_at_or_below_the_mark_are_left_alone() -> None:
    assert [is_due(mark(4), place(), Publication(batch, 1), "s1") for batch in (3, 4, 5)] == [False, False, True]
    assert is_due(mark(-1), place(), Publication(41, 1), "s1")


@pytest.mark.parametrize("found", [None, mark(2), mark(4, store="s2")])
def test_a_loss_stops_the_flow_or_asks_for_what_the_checkpoint_keeps_or_is_ignored(found: Mark | None) -> None:
    with pytest.raises(SinkError, match="on_loss"):
        is_due(found, place(), Publication(5, 1), "s1")
    with pytest.raises(ResultsLost) as lost:
        is_due(found, place("republish"), Publication(5, 1), "s1")
    assert lost.value.since == (3 if found is not None and found.batch == 2 else 0)
    assert is_due(found, place("ignore"), Publication(5, 1), "s1")
    assert is_due(found, place(), Publication(5, 1, rebuilding=True), "s1")


def test_what_is_ignored_is_not_published_twice() -> None:
    assert not is_due(mark(5, store="s2"), place("ignore"), Publication(5, 1), "s1")


def test_an_older_driver_and_another_flow_are_refused() -> None:
    with pytest.raises(SinkError, match="newer driver"):
        is_due(mark(4, epoch=3), place(), Publication(5, 2), "s1")
    with pytest.raises(SinkError, match="belongs to the flow 'other'"):
        is_due(mark(4, flow="other"), place(), Publication(5, 2), "s1")


def test_the_next_mark_keeps_the_store() -> None:
    assert next_mark(mark(4), place(), Publication(5, 2)) == mark(5, epoch=2)
    assert next_mark(None, place(), Publication(0, 2)).store


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_a_server_is_waited_for_with_growing_pauses_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "anabranch")
    clock, answers = Clock(), iter([False] * 9 + [True])

    def attempt() -> str:
        if not next(answers):
            raise ServerAway("refused")
        return "done"

    assert insist("db", 600.0, attempt, lambda: clock.now, clock.sleep) == "done"
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert [record.getMessage() for record in caplog.records] == [
        "db is out of reach (refused): waiting for it",
        "db is back after 33 s",
    ]


def test_patience_has_an_end_that_says_what_to_do() -> None:
    clock = Clock()

    def attempt() -> None:
        raise ServerAway("refused")

    with pytest.raises(SinkError, match=r"out of reach for \d+ s: refused; see that the server runs"):
        insist("db", 60.0, attempt, lambda: clock.now, clock.sleep)
    assert clock.now <= 60.0


def test_other_errors_are_not_waited_for() -> None:
    def attempt() -> None:
        raise SinkError("wrong")

    with pytest.raises(SinkError, match="wrong"):
        insist("db", 60.0, attempt)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pass@host:5432/db?sslmode=require", "postgresql://host:5432/db"),
        ("postgresql://me:p@ss/w?rd@host/db", "postgresql://host/db"),
        ("redis://:${SECRET}@host/0", "redis://host/0"),
        ("redis://host", "redis://host"),
        ("nonsense", "(no URL)"),
    ],
)
def test_addresses_are_shown_without_user_password_and_options(url: str, shown: str) -> None:
    assert show_address(url) == shown


def test_an_address_is_taken_apart_and_its_password_scrubbed_from_texts() -> None:
    address = read_address("mariadb://me:p%40ss@host:3307/db?ssl_ca=/ca.pem", ("mariadb",), "mariadb://…")
    assert (address.user, address.password, address.host, address.port, address.database) == (
        "me",
        "p@ss",
        "host",
        3307,
        "db",
    )
    assert address.options == {"ssl_ca": "/ca.pem"}
    assert address.scrub("bad: p@ss\nmore") == "bad: ***"
    for wrong in ("http://me:hush@host/db", "mariadb://me:hush@host:port/db", "nonsense"):
        with pytest.raises(SinkError, match="a URL such as") as raised:
            read_address(wrong, ("mariadb",), "mariadb://…")
        assert "hush" not in str(raised.value)


def test_environment_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_SECRET", "x")
    assert fill_in("redis://:${DB_SECRET}@host/0") == "redis://:x@host/0"
    with pytest.raises(SinkError, match=r"redis://host/0 needs the environment variable DB_OTHER"):
        fill_in("redis://:${DB_OTHER}@host/0")
