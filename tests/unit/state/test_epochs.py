from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import psutil
import pytest

from anabranch.errors import CheckpointError, Fenced
from anabranch.state import Owner, Store, check_epoch, open_store, take_epoch
from unit.state.builders import PROCESSES, Clock

ELSEWHERE = Owner(host="other-host", machine="other-machine", pid=4711, process_started=1.0)
HERE = Owner.this_process()


def test_epochs_count_from_1(store: Store) -> None:
    first = take_epoch(store, HERE, Clock())
    first.release()
    assert (first.epoch, take_epoch(store, HERE, Clock()).epoch) == (1, 2)


def test_a_second_driver_is_refused_while_the_first_is_alive(store: Store) -> None:
    take_epoch(store, HERE, Clock())
    found = rf"in use by a driver on {HERE.host}, process {HERE.pid}.*takeover=True \(--takeover\)"
    with pytest.raises(Fenced, match=found):
        take_epoch(store, HERE, Clock())


def test_a_takeover_fences_the_first_driver(store: Store) -> None:
    first = take_epoch(store, HERE, Clock())
    first.check()
    second = take_epoch(store, HERE, Clock(), takeover=True)
    second.check()
    with pytest.raises(Fenced, match="this driver has epoch 1"):
        first.check()
    with pytest.raises(Fenced):
        check_epoch(store, 1)


def test_a_released_epoch_lets_the_next_driver_in(store: Store) -> None:
    first = take_epoch(store, ELSEWHERE, Clock())
    first.release()
    first.release()
    assert take_epoch(store, HERE, Clock()).epoch == 2


def test_a_reused_process_id_is_another_process(store: Store) -> None:
    take_epoch(store, replace(HERE, process_started=HERE.process_started - 1000), Clock())
    assert take_epoch(store, HERE, Clock()).epoch == 2


def test_a_driver_on_another_host_lives_by_its_heartbeat(store: Store) -> None:
    clock = Clock()
    far = take_epoch(store, ELSEWHERE, clock)
    clock.seconds += 29
    with pytest.raises(Fenced, match=r"on other-host, process 4711 .*heartbeat is 29 s old"):
        take_epoch(store, HERE, clock)
    far.beat()
    clock.seconds += 29
    with pytest.raises(Fenced):
        take_epoch(store, HERE, clock)
    clock.seconds += 2
    assert take_epoch(store, HERE, clock).epoch == 2


def test_a_driver_that_died_before_its_first_heartbeat_counts_from_its_start(store: Store) -> None:
    clock = Clock()
    take_epoch(store, ELSEWHERE, clock)
    store.delete(["epochs/00000001.heartbeat"])
    with pytest.raises(Fenced):
        take_epoch(store, HERE, clock)
    clock.seconds += 31
    assert take_epoch(store, HERE, clock).epoch == 2


def test_heartbeats_are_written_only_every_few_seconds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    lease = take_epoch(store, HERE, clock)
    written: list[str] = []
    monkeypatch.setattr(type(store), "write", lambda self, name, content: written.append(name))
    for _ in range(10):
        clock.seconds += 1.0
        lease.beat()
    assert len(written) == 2


def test_an_unreadable_epoch_file_says_how_to_go_on(store: Store) -> None:
    store.create("epochs/00000001.json", b"{")
    with pytest.raises(CheckpointError, match=r"takeover=True \(--takeover\)"):
        take_epoch(store, HERE, Clock())
    assert take_epoch(store, HERE, Clock(), takeover=True).epoch == 2


def test_a_lost_answer_to_the_creation_is_not_another_driver(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store's client repeats a request whose answer was lost, and is told that the file exists."""
    create = type(store).create

    def create_twice(self: Store, name: str, content: bytes) -> None:
        create(self, name, content)
        create(self, name, content)

    monkeypatch.setattr(type(store), "create", create_twice)
    assert take_epoch(store, HERE, Clock()).epoch == 1


def _take_in_a_race(root: str, barrier: Barrier, taken: multiprocessing.Queue[int], takeover: bool) -> None:
    store = open_store(root)
    barrier.wait()
    try:
        taken.put(take_epoch(store, Owner.this_process(), time.time, takeover).epoch)
    except Fenced:
        taken.put(-1)
    # The winner lives until all have tried.
    barrier.wait()


@pytest.mark.parametrize(("takeover", "expected"), [(False, [-1, -1, -1, 1]), (True, [1, 2, 3, 4])])
def test_of_racing_drivers_each_epoch_has_one_owner(tmp_path: Path, takeover: bool, expected: list[int]) -> None:
    racers = len(expected)
    barrier, taken = PROCESSES.Barrier(racers), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=_take_in_a_race, args=(str(tmp_path), barrier, taken, takeover)) for _ in range(racers)
    ]
    for process in processes:
        process.start()
    results = sorted(taken.get(timeout=60) for _ in range(racers))
    for process in processes:
        process.join()
    assert results == expected


def _hold(root: str, holding: Event) -> None:
    take_epoch(open_store(root), Owner.this_process(), time.time)
    holding.set()
    signal.pause()


def test_a_stopped_driver_is_fenced_off_unless_it_must_be_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    holding = PROCESSES.Event()
    driver = PROCESSES.Process(target=_hold, args=(str(tmp_path), holding))
    driver.start()
    assert driver.pid is not None
    try:
        assert holding.wait(60)
        with pytest.raises(Fenced, match=f"process {driver.pid} .*its process runs"):
            take_epoch(store, HERE, time.time)
        os.kill(driver.pid, signal.SIGSTOP)
        while psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        with pytest.raises(Fenced, match="its process is stopped"):
            take_epoch(store, HERE, time.time, over_stopped=False)
        take_epoch(store, HERE, time.time).release()
        with pytest.raises(Fenced):
            check_epoch(store, 1)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.join()


def test_a_driver_killed_with_minus_9_is_replaced_at_once(tmp_path: Path) -> None:
    holding = PROCESSES.Event()
    driver = PROCESSES.Process(target=_hold, args=(str(tmp_path), holding))
    driver.start()
    assert holding.wait(60)
    driver.kill()
    driver.join()
    assert take_epoch(open_store(tmp_path), HERE, time.time).epoch == 2
