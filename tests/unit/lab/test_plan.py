"""What a lab may be on a machine."""

from __future__ import annotations

import pytest

from anabranch.lab.errors import LabError
from anabranch.lab.plan import DRIVER, LabPlan, name_worker, number_of
from anabranch.lab.standalone import WorkerSize


def test_quotas_with_the_drivers_may_be_all_of_the_machine_and_no_more() -> None:
    plan = LabPlan(hosts=4, cpu=0.4)
    plan.check_cores(4, 2)
    with pytest.raises(LabError) as refused:
        plan.check_cores(5, 2)
    assert str(refused.value) == (
        "5 hosts with 0.4 cores each and the driver's with 0.4 are 2.4 cores, and this machine has 2; "
        "give each at most --cpu 0.33, or have fewer hosts"
    )


def test_the_driver_may_have_a_quota_of_its_own() -> None:
    plan = LabPlan(hosts=3, cpu=0.5, driver_cpu=1.0)
    assert plan.quota_of(DRIVER) == 1.0 and plan.quota_of("h1") == 0.5
    plan.check_cores(2, 2)
    with pytest.raises(LabError, match=r"at most --cpu 0\.33"):
        plan.check_cores(3, 2)
    with pytest.raises(LabError, match=r"at most --cpu 0,"):
        LabPlan(hosts=3, cpu=0.5, driver_cpu=3.0).check_cores(3, 2)
    with pytest.raises(LabError, match="the others have none"):
        LabPlan(hosts=3, driver_cpu=1.0).check_cores(3, 2)


def test_without_quotas_there_may_be_more_hosts_than_cores() -> None:
    plan = LabPlan(hosts=20)
    plan.check_cores(20, 2)
    assert plan.quota_of(DRIVER) is None


def test_a_worker_has_a_core_for_each_begun_core_of_its_host() -> None:
    assert LabPlan(1).worker_size == WorkerSize(1, "1024m")
    assert LabPlan(1, cpu=0.4, memory_mb=800).worker_size == WorkerSize(1, "800m")
    assert LabPlan(1, cpu=1.5).worker_size.cores == 2


def test_hosts_have_numbers_in_their_network() -> None:
    assert [number_of(name) for name in (DRIVER, name_worker(1), "h12")] == [0, 1, 12]
    for wrong in ("h0", "h", "x1", "h1000", "h-1", "H1"):
        with pytest.raises(LabError, match="no name for a host"):
            number_of(wrong)
