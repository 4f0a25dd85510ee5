"""What Python workers of functions get, while several threads make functions."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.spark.session import task_environment


def make_session() -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(environment={"PYTHONHASHSEED": "0"}))


def test_functions_that_are_made_within_get_one_thread_each_and_others_what_they_had() -> None:
    session = make_session()
    before = session.sparkContext.environment
    with pytest.raises(ZeroDivisionError), task_environment(session):
        assert session.sparkContext.environment["POLARS_MAX_THREADS"] == "1"
        assert session.sparkContext.environment["PYTHONHASHSEED"] == "0"
        raise ZeroDivisionError
    assert session.sparkContext.environment is before
    assert before == {"PYTHONHASHSEED": "0"}


def test_who_makes_functions_elsewhere_meanwhile_is_not_disturbed() -> None:
    session = make_session()
    passing = iter(session.sparkContext.environment.items())
    with task_environment(session):
        # Spark goes through it so, in the thread of a user's own query.
        assert list(passing) == [("PYTHONHASHSEED", "0")]


def test_threads_that_make_functions_at_a_time_wait_for_one_another() -> None:
    session = make_session()

    def make_function() -> None:
        with task_environment(session):
            pass

    with task_environment(session):
        passing = iter(session.sparkContext.environment.items())
        next(passing)
        other = threading.Thread(target=make_function)
        other.start()
        other.join(timeout=0.1)
        assert "POLARS_MAX_THREADS" in dict(passing)
        assert other.is_alive()
    other.join()
    assert session.sparkContext.environment == {"PYTHONHASHSEED": "0"}
