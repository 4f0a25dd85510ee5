"""What a lab refuses, and how it speaks of a lab that is not there; the rest takes a cluster, see tests/lab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.lab import lab as labs
from anabranch.lab.errors import LabError
from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile, read_boot
from unit.lab.test_record import RECORD


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordFile:
    """A record's place, on a machine of two cores that could have hosts, though none is made."""
    monkeypatch.setattr(labs, "find_hindrance", lambda: None)
    monkeypatch.setattr(labs, "check_hosts", lambda count: None)
    monkeypatch.setattr(labs, "_count_cores", lambda: 2)
    for forbidden in ("plan_network", "make_network", "make_host", "remove_network", "sweep_leftovers"):
        monkeypatch.setattr(labs, forbidden, lambda *_, name=forbidden: pytest.fail(f"{name} was called"))
    return RecordFile(tmp_path)


def test_without_root_it_says_what_is_missing_and_what_can_be_had(
    file: RecordFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labs, "find_hindrance", lambda: "network namespaces need root")
    with pytest.raises(LabError, match=r"need root; for executors .* --master 'local-cluster\[3,1,1024\]'"):
        Lab(file).up(LabPlan(hosts=3))
    with pytest.raises(LabError, match="need root"):
        Lab(file).cut("h1")
    assert not file.path.exists()


def test_more_cores_than_there_are_make_no_lab(file: RecordFile) -> None:
    with pytest.raises(LabError, match="this machine has 2"):
        Lab(file).up(LabPlan(hosts=2, cpu=1.0))
    assert not file.path.exists()


def test_a_second_lab_is_refused(file: RecordFile) -> None:
    file.write(replace(RECORD, complete=True, boot=read_boot()))
    with pytest.raises(LabError, match="there is a lab already, with 2 hosts"):
        Lab(file).up(LabPlan(hosts=2))


@pytest.mark.parametrize(
    "use",
    [Lab.status, lambda lab: lab.cut("h1"), lambda lab: lab.add(), lambda lab: lab.place("h1", ["true"])],
)
def test_a_lab_that_is_not_there_or_not_whole_says_what_to_do(file: RecordFile, use: Callable[[Lab], object]) -> None:
    with pytest.raises(LabError, match="make one: anabranch lab up"):
        use(Lab(file))
    file.write(replace(RECORD, boot=read_boot()))
    with pytest.raises(LabError, match="half made"):
        use(Lab(file))
    file.write(replace(RECORD, complete=True, boot="before"))
    with pytest.raises(LabError, match="started anew"):
        use(Lab(file))


def test_a_lab_that_is_not_there_can_be_taken_down(file: RecordFile) -> None:
    assert Lab(file).down() is False
    assert Lab(file).down() is False


def test_a_host_beyond_the_machines_cores_is_not_added(file: RecordFile) -> None:
    plan = replace(RECORD.plan, cpu=0.6)
    file.write(replace(RECORD, complete=True, boot=read_boot(), plan=plan))
    with pytest.raises(LabError, match=r"3 hosts with 0\.6 cores"):
        Lab(file).add()
    with pytest.raises(LabError, match="has no worker"):
        Lab(file).add("driver")
    with pytest.raises(LabError, match="no name for a host"):
        Lab(file).add("worker-3")
    read = file.read()
    assert read is not None and [host.name for host in read.hosts] == ["driver", "h1", "h2"]


def test_a_program_on_a_host_is_in_its_group_before_it_is_in_its_namespace(file: RecordFile) -> None:
    record = file.write(replace(RECORD, complete=True, boot=read_boot()))
    words, variables = Lab(file).place("h1", ["python", "job.py"])
    group = record.group_of("h1")
    assert group is not None
    assert words == [*group.prefix, *record.place_of("h1").prefix, "python", "job.py"]
    assert variables["ANABRANCH_MASTER"] == "spark://10.213.3.1:7077"
    assert variables["SPARK_LOCAL_IP"] == record.place_of("h1").address
