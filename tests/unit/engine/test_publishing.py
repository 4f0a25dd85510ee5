"""Handing batches to sinks, and again what a sink's place lost."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.connectors import parquet
from anabranch.connectors.sink_ownership import ResultsLost, TakenOver
from anabranch.engine.batches.publishing import Publisher
from anabranch.errors import Fenced, SinkError
from anabranch.model import StagedFile


class FewBatches:
    """Stands in for a checkpoint that keeps some batches."""

    store = SimpleNamespace(local_path=lambda name: Path("/checkpoint") / name, url="/checkpoint")

    def __init__(self, *kept: int) -> None:
        self._kept = kept

    def batches(self) -> list[int]:
        return list(self._kept)

    def load(self, batch: int) -> Any:
        staged = {0: (StagedFile(f"results/{batch}.arrow", 1, 10, 0),)}
        return SimpleNamespace(batch=batch, epoch=7, flow="flow", sinks=staged)


@dataclass
class ForgetfulSink:
    """Loses what it has, once, and wants it back."""

    since: int | None = None
    heard: list[tuple[int, str, bool, int]] = field(default_factory=list)

    def publish(self, batch: int, staged: Any, context: Any) -> None:
        if self.since is not None and not context["rebuilding"]:
            lost, self.since = self.since, None
            raise ResultsLost("the place lost results", lost)
        self.heard.append((batch, staged[0][1], context["rebuilding"], context["driver_epoch"]))


def hold_lease() -> None:
    """Say that no other driver has taken the flow over."""


def publisher(sink: Any, *kept: int, check_lease: Any = hold_lease) -> tuple[Publisher, FewBatches]:
    checkpoint = FewBatches(*kept)
    return Publisher(checkpoint, {0: sink}, {"driver_epoch": 9}, check_lease), checkpoint  # type: ignore[arg-type]


def test_a_batch_is_handed_on_with_its_files_and_the_drivers_epoch() -> None:
    sink = ForgetfulSink()
    publishing, checkpoint = publisher(sink, 0, 1)
    publishing.publish(checkpoint.load(1))
    assert sink.heard == [(1, "/checkpoint/results/1.arrow", False, 9)]


def test_what_a_place_lost_is_published_again_as_far_as_it_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "anabranch")
    sink = ForgetfulSink(since=1)
    publishing, checkpoint = publisher(sink, 3, 4, 5)
    publishing.publish(checkpoint.load(5))
    assert [(batch, rebuilding) for batch, _, rebuilding, _ in sink.heard] == [(3, True), (4, True), (5, True)]
    assert "publishing batches 3 to 5 again; batches 1 to 2 are kept no longer and stay lost" in caplog.text


def test_only_batches_since_the_loss_are_published_again(caplog: pytest.LogCaptureFixture) -> None:
    sink = ForgetfulSink(since=4)
    publishing, checkpoint = publisher(sink, 2, 3, 4, 5)
    publishing.publish(checkpoint.load(5))
    assert [batch for batch, *_ in sink.heard] == [4, 5]
    assert "stay lost" not in caplog.text


def test_a_committed_batch_is_spoken_of_only_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    sink = parquet(tmp_path / "file" / "out")
    with pytest.raises(SinkError, match="file is a file") as at_check:
        sink.check({})
    with pytest.raises(SinkError, match=r"cannot write .*_anabranch: Not a directory") as at_start:
        sink.claim("flow", None)
    assert not any("is committed" in str(error.value) for error in (at_check, at_start))
    publishing, checkpoint = publisher(sink, 1)
    with pytest.raises(SinkError, match=r"batch 1 is committed, and its publication goes on at the next start$"):
        publishing.publish(checkpoint.load(1))


def test_a_place_that_cannot_be_rebuilt_leaves_the_batch_for_the_next_start() -> None:
    class Lost:
        def publish(self, batch: int, staged: Any, context: Any) -> None:
            if context["rebuilding"]:
                raise SinkError("still out of reach")
            raise ResultsLost("the place lost results", 0)

    publishing, checkpoint = publisher(Lost(), 0, 1)
    with pytest.raises(SinkError, match="still out of reach; batch 1 is committed"):
        publishing.publish(checkpoint.load(1))


class TakenSink:
    """Was taken over by another driver, as often as is said."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.heard: list[int] = []

    def publish(self, batch: int, staged: Any, context: Any) -> None:
        if self.times:
            self.times -= 1
            raise TakenOver("another driver took it over")
        self.heard.append(batch)


def test_a_place_is_taken_back_once_by_the_driver_that_has_the_lease() -> None:
    sink = TakenSink(1)
    publishing, checkpoint = publisher(sink, 1)
    publishing.publish(checkpoint.load(1))
    assert sink.heard == [1]
    publishing, checkpoint = publisher(TakenSink(2), 1)
    with pytest.raises(SinkError, match="took it over; batch 1 is committed"):
        publishing.publish(checkpoint.load(1))


def test_a_place_is_not_taken_back_by_a_driver_that_was_replaced() -> None:
    def lose() -> None:
        raise Fenced("another driver has the checkpoint")

    sink = TakenSink(1)
    publishing, checkpoint = publisher(sink, 1, check_lease=lose)
    with pytest.raises(Fenced):
        publishing.publish(checkpoint.load(1))
    assert sink.heard == []
