"""A small extent of `anabranch bench replicas --only lab`: a host is cut off, and the simulator says the same."""

from __future__ import annotations

import json
import os
import tempfile
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.replicas.cuts import Cut, Extent, compute_cut_figures, describe_cuts, print_cuts, run_cuts
from benchmarks.servers.jars import ServerMissing
from benchmarks.shared.registry import BenchOptions
from lab.hosts import find_what_is_missing
from quick_jvm import QUICK_JVM, SPARK_ENVIRONMENT
from servers.programs import skip_or_fail

pytestmark = pytest.mark.xdist_group("lab")
SMALL = Extent(hosts=3, slots=3, failures=1, cuts=1, placements=("mrp",), keys=6_000, rows=200, interval_seconds=1.0)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Cut:
    """What became of one cut."""
    if missing := find_what_is_missing():
        pytest.skip(missing)
    # A lab is found by its record, also if a run of tests that was killed left it: always at the same place.
    cache = Path(tempfile.gettempdir()) / f"anabranch-cuts-tests-{os.geteuid()}"
    options = BenchOptions(cache_dir=cache, out_dir=tmp_path_factory.mktemp("cuts"))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**SPARK_ENVIRONMENT, "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}.items():
            patched.setenv(name, value)
        try:
            (found,) = run_cuts(options, Console(file=StringIO()), SMALL)
        except ServerMissing as missing_server:
            skip_or_fail(missing_server)
    print(json.dumps(describe_cuts([found]), indent=1))
    return found


def test_one_of_three_hosts_is_cut_off_and_no_slot_reads_the_store(cut: Cut) -> None:
    assert len(cut.cut) == 1
    assert cut.has_copies and cut.lab.sources
    assert set(cut.lab.sources) == {slot for slot, home in cut.homes.items() if home in cut.cut}
    assert set(cut.lab.sources.values()) <= {"replica"}
    assert cut.lab.later_commits > 0
    assert cut.is_right


def test_the_simulator_lets_the_same_slots_go_on_from_the_same_place(cut: Cut) -> None:
    assert cut.simulated.sources == cut.lab.sources
    assert cut.differences == []


def test_what_was_found_is_told_in_figures_and_in_a_table(cut: Cut) -> None:
    figures = compute_cut_figures([cut])
    assert figures["sim_sources_as_lab_pct"] == figures["lab_mrp_availability_pct"] == 100
    shown = StringIO()
    print_cuts([cut], Console(file=shown, width=180))
    assert "The simulator had every slot go on as the lab did." in shown.getvalue()
