"""Daemons that outlive who started them, and what a cluster's users must say."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from anabranch.lab.plan import DRIVER
from anabranch.lab.settings import list_settings, list_variables, write_settings
from anabranch.lab.standalone import Daemon, ask_master, name_local_cluster
from anabranch.lab.status import list_alive
from unit.lab.test_record import RECORD

PAGE = (
    b'{"workers": [{"id": "w1", "host": "10.213.3.4", "state": "DEAD"}, {"id": "w2", "host": "10.213.3.4", '
    b'"state": "ALIVE"}, {"id": "w3", "host": "10.213.3.5", "state": "DEAD"}], "activeapps": [{"name": "alerts"}]}'
)


def test_a_daemon_is_ended_with_all_that_it_started() -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    below = psutil.Process(int(shell.stdout.readline()))
    daemon = Daemon(shell.pid, psutil.Process(shell.pid).create_time())
    assert daemon.is_alive
    daemon.end()
    assert not daemon.is_alive and not below.is_running()
    daemon.end()
    shell.stdout.close()
    shell.wait()


def test_a_later_process_of_the_same_number_is_another_one() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        earlier = Daemon(sleeper.pid, psutil.Process(sleeper.pid).create_time() - 60)
        assert not earlier.is_alive
        earlier.end()
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_daemon_whose_end_nobody_took_note_of_is_not_alive() -> None:
    ended = subprocess.Popen(["true"])
    began = psutil.Process(ended.pid).create_time()
    while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert not Daemon(ended.pid, began).is_alive
    ended.wait()


@pytest.fixture
def pages() -> Iterator[str]:
    """The pages of a master with two workers that it has given up, and one that it has not."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/json/" else 404)
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_workers_that_the_master_has_given_up_are_not_alive(pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert list_alive(ask_master(pages)) == {"10.213.3.4": "w2"}


def test_a_master_that_does_not_answer_says_nothing() -> None:
    assert ask_master("http://127.0.0.1:1") == {}
    assert list_alive({}) == {}


def test_drivers_are_told_an_address_that_hosts_can_reach() -> None:
    outside, inside = list_settings(RECORD), list_settings(RECORD, DRIVER)
    assert outside["spark.driver.host"] == RECORD.gateway
    assert inside["spark.driver.host"] == RECORD.place_of(DRIVER).address
    assert {name for name in outside if outside[name] != inside[name]} == {
        "spark.driver.host",
        "spark.driver.bindAddress",
    }
    # An executor takes a worker as a whole.
    assert outside["spark.executor.memory"] == RECORD.plan.worker_size.memory
    assert "ActiveProcessorCount=1" in outside["spark.executor.extraJavaOptions"]
    without_quota = replace(RECORD, plan=replace(RECORD.plan, cpu=None))
    assert "spark.executor.extraJavaOptions" not in list_settings(without_quota)


def test_the_file_that_spark_reads_says_the_same(tmp_path: Path) -> None:
    record = replace(RECORD, folder=str(tmp_path))
    write_settings(record, DRIVER)
    folder = Path(list_variables(record, DRIVER)["SPARK_CONF_DIR"])
    lines = (folder / "spark-defaults.conf").read_text().splitlines()
    assert dict(line.split(" ", 1) for line in lines) == list_settings(record, DRIVER)


def test_a_local_cluster_needs_no_root() -> None:
    assert name_local_cluster(4) == "local-cluster[4,1,1024]"
