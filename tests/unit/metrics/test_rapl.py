"""Counters of energy, in a folder as the kernel has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.metrics.rapl import PowerError, measure_between, read_rapl
from anabranch.model.power import EnergyCounter, RaplReading

RANGE = 262_143_328_850
"""What an Intel server shows."""


def write_zone(folder: Path, zone: str, name: str, energy: int, largest: int = RANGE) -> None:
    path = folder / zone
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    (path / "max_energy_range_uj").write_text(f"{largest}\n")


def test_packages_and_memory_are_counted_and_their_parts_are_not(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1_000)
    write_zone(tmp_path, "intel-rapl:0:0", "core", 700)
    write_zone(tmp_path, "intel-rapl:0:1", "dram", 200)
    write_zone(tmp_path, "intel-rapl:1", "package-1", 3_000)
    write_zone(tmp_path, "intel-rapl:1:1", "dram", 400)
    write_zone(tmp_path, "intel-rapl:2", "psys", 9_000)
    write_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000)
    (tmp_path / "intel-rapl").mkdir()
    reading = read_rapl(5.0, tmp_path)
    assert reading is not None
    assert sum(counter.microjoules for counter in reading.counters.values()) == 1_000 + 200 + 3_000 + 400
    assert len(reading.counters) == 4


def test_without_counters_there_is_no_reading(tmp_path: Path) -> None:
    assert read_rapl(0.0, tmp_path / "nowhere") is None
    assert read_rapl(0.0, tmp_path) is None


def test_joules_are_what_counters_rose_by_and_are_called_measured(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    before = read_rapl(10.0, tmp_path)
    write_zone(tmp_path, "intel-rapl:0", "package-0", 605_000_000)
    after = read_rapl(20.0, tmp_path)
    assert before is not None
    assert after is not None
    figure = measure_between(before, after)
    assert figure.joules == pytest.approx(600)
    assert figure.basis == "measured"
    # A millisecond at 60 W.
    assert figure.high_joules - figure.joules == pytest.approx(0.06)
    assert figure.per_million_rows(4_000_000).joules == pytest.approx(150)


def test_a_counter_that_began_again_is_taken_for_what_it_rose() -> None:
    zone = "intel-rapl:0 package-0"
    before = RaplReading(0.0, {zone: EnergyCounter(RANGE - 9_999_999, RANGE)})
    after = RaplReading(1.0, {zone: EnergyCounter(20_000_000, RANGE)})
    assert measure_between(before, after).joules == pytest.approx(30)


def test_readings_so_far_apart_that_a_counter_may_have_begun_twice_are_refused() -> None:
    zone = "intel-rapl:0 package-0"
    before = RaplReading(0.0, {zone: EnergyCounter(0, RANGE)})
    after = RaplReading(3_600.0, {zone: EnergyCounter(1, RANGE)})
    with pytest.raises(PowerError, match=r"read at least every 131 s"):
        measure_between(before, after)


def test_counters_that_are_not_the_same_are_refused() -> None:
    before = RaplReading(0.0, {"a": EnergyCounter(0, RANGE)})
    with pytest.raises(PowerError, match="read again"):
        measure_between(before, RaplReading(1.0, {"b": EnergyCounter(0, RANGE)}))
    with pytest.raises(PowerError, match="in the order"):
        measure_between(before, before)


def test_a_counter_with_no_number_says_what_to_do(tmp_path: Path) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("none")
    with pytest.raises(PowerError, match="give hosts a power curve"):
        read_rapl(0.0, tmp_path)
