"""The record of a lab: found again as it was written, by one command at a time."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.lab import record as records
from anabranch.lab.control_groups import ControlGroup
from anabranch.lab.errors import LabError
from anabranch.lab.plan import DRIVER, LabPlan
from anabranch.lab.record import LabHost, LabRecord, RecordFile, find_record_file, read_boot
from anabranch.lab.standalone import Daemon, Master
from anabranch.lab.wires import WireLimit

RECORD = LabRecord(
    mark="0a1b2c",
    folder="/tmp/anabranch-lab-0a1b2c",
    gateway="10.213.3.1",
    plan=LabPlan(hosts=2, cpu=0.4, mbit=1000),
    boot="b",
    hosts=(LabHost(DRIVER), LabHost("h1", Daemon(7, 1.5), WireLimit(10, 2)), LabHost("h2")),
    master=Master(Daemon(6, 1.25), "spark://10.213.3.1:7077", "http://10.213.3.1:8080"),
    group=ControlGroup(1, ("/sys/fs/cgroup/cpu/anabranch-lab-0a1b2c",)),
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    assert file.read() is None
    assert file.write(RECORD) is RECORD
    assert file.read() == RECORD
    file.remove()
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("content", ["", "{}", '{"format": 2}'])
def test_a_record_that_is_not_understood_is_named_with_a_way_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "lab.json").write_text(content)
    with pytest.raises(LabError, match=r"lab\.json is no record.*ip netns list"):
        RecordFile(tmp_path).read()


def test_hosts_are_found_by_name_and_by_address_and_unknown_ones_named_with_those_there_are() -> None:
    assert RECORD.find("h1") is RECORD.hosts[1]
    assert RECORD.find(RECORD.place_of("h2").address) is RECORD.hosts[2]
    with pytest.raises(LabError, match=r"no host 'h3'.*there are driver, h1, h2"):
        RECORD.find("h3")


def test_every_host_has_an_address_and_names_of_its_own() -> None:
    places = [RECORD.place_of(host.name) for host in RECORD.hosts]
    assert [place.address for place in places] == ["10.213.3.3", "10.213.3.4", "10.213.3.5"]
    assert [place.link for place in places] == ["abl0a1b2ch0", "abl0a1b2ch1", "abl0a1b2ch2"]
    # The kernel takes no longer names of interfaces.
    assert len(RECORD.place_of("h150").link) <= 15 and len(RECORD.network.bridge) <= 15
    assert RECORD.group_of("h1") == ControlGroup(1, ("/sys/fs/cgroup/cpu/anabranch-lab-0a1b2c/h1",))
    assert replace(RECORD, group=None).group_of("h1") is None


def test_a_host_is_replaced_or_put_in_its_place() -> None:
    changed = RECORD.with_host(LabHost("h3")).with_host(LabHost("h1"))
    assert [host.name for host in changed.hosts] == [DRIVER, "h1", "h2", "h3"]
    assert changed.hosts[1].worker is None
    assert [host.name for host in changed.workers] == ["h1", "h2", "h3"]


def test_a_second_command_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordFile(tmp_path / "new")
    hold = (
        "import sys; from pathlib import Path; from anabranch.lab.record import RecordFile\n"
        "with RecordFile(Path(sys.argv[1])).locked(): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(file.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        monkeypatch.setattr(records, "_LOCK_SECONDS", 0.0)
        with pytest.raises(LabError, match="another command"), file.locked():
            pass
    finally:
        # Whoever is killed holds nothing any more.
        other.kill()
        other.communicate()
    with file.locked():
        pass


def test_a_folder_that_others_write_in_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(LabError, match="only user"), RecordFile(tmp_path / "open").locked():
        pass


def test_a_users_record_lies_where_the_system_keeps_what_ends_with_it(tmp_path: Path) -> None:
    assert find_record_file({"XDG_RUNTIME_DIR": str(tmp_path)}, 1000).path == tmp_path / "anabranch" / "lab.json"
    assert find_record_file({}, 0).folder == Path("/run/anabranch")
    assert find_record_file({}, 1000).folder.name == "anabranch-run-1000"


def test_starts_of_the_machine_are_told_apart() -> None:
    assert len(read_boot()) == 36
