"""Waits for servers are seen while they last, and told afterwards."""

from __future__ import annotations

import threading

import pytest

from anabranch.connectors.retry import ServerAway, insist
from anabranch.connectors.waits import WaitBoard, begin_wait, end_wait, noted_on
from anabranch.errors import SinkError
from anabranch.model.waits import PastWait, Wait


class Clock:
    """A clock that sleeping moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_wait_is_on_the_board_while_it_lasts_and_told_once_afterwards() -> None:
    clock = Clock()
    shown: list[tuple[Wait, ...]] = []
    board = WaitBoard(shown.append, clock)

    def attempt() -> str:
        if clock.now < 1003.0:
            raise ServerAway("refused")
        assert board.current == (Wait("redis://cache", "refused", 1000.0),)
        return "answer"

    with noted_on(board):
        assert insist("redis://cache", 60.0, attempt, clock, clock.sleep) == "answer"
    assert board.current == ()
    assert [len(waits) for waits in shown] == [1, 0]
    (past,) = board.take_past()
    assert (past.place, past.reason) == ("redis://cache", "refused")
    assert past.seconds == pytest.approx(clock.now - 1000.0)
    assert board.take_past() == ()


def test_a_server_that_is_given_up_is_waited_for_no_longer() -> None:
    clock = Clock()
    board = WaitBoard(wall_clock=clock)

    def attempt() -> None:
        raise ServerAway("refused")

    with noted_on(board), pytest.raises(SinkError, match="out of reach"):
        insist("redis://cache", 5.0, attempt, clock, clock.sleep)
    assert board.current == ()


def test_an_answer_at_once_is_no_wait() -> None:
    board = WaitBoard()
    with noted_on(board):
        insist("redis://cache", 5.0, lambda: None)
    assert board.take_past() == ()


def test_a_wait_may_be_noted_late_and_one_place_is_waited_for_once() -> None:
    board = WaitBoard(wall_clock=lambda: 100.0)
    with noted_on(board):
        begin_wait("Kafka", "no answer", seconds_ago=5.0)
        begin_wait("Kafka", "still no answer")
        assert board.current == (Wait("Kafka", "no answer", 95.0),)
        end_wait("Kafka")
    assert board.take_past() == (PastWait("Kafka", "no answer", 5.0),)
    assert str(PastWait("Kafka", "no answer", 5.0)) == "Kafka was waited for, 5 s (no answer)"


def test_threads_of_other_flows_note_nothing_here() -> None:
    board = WaitBoard()
    with noted_on(board):
        other = threading.Thread(target=begin_wait, args=("Kafka", "no answer"))
        other.start()
        other.join()
    begin_wait("Kafka", "no answer")
    assert board.current == ()
