from __future__ import annotations

import dataclasses

import pytest
from typer.testing import CliRunner

from anabranch.cli import app as command
from anabranch.cli.doctor import command as doctor_command
from anabranch.cli.doctor.command import Finding, examine
from anabranch.cli.doctor.machine import Java, Machine

GIGABYTE = 10**9


@dataclasses.dataclass
class FakeMachine(Machine):
    """A machine on which everything is fine, except for what a test says."""

    python: tuple[int, int, int] = (3, 12, 1)
    found_java: Java | None = dataclasses.field(default_factory=lambda: Java("/usr/bin/java", 21))
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    commands: tuple[str, ...] = ("ip", "tc", "unshare")
    required: tuple[str, ...] = ("pyspark<4.4,>=4.3", "polars<3,>=2.1", "rich<16,>=14")
    installed: dict[str, str] = dataclasses.field(
        default_factory=lambda: {
            **{"pyspark": "4.3.0", "polars": "2.1.0", "rich": "15.0.0"},
            **{f"py{extra}": "2.0" for extra in doctor_command.CONNECTORS},
        }
    )
    memory: int = 16 * GIGABYTE
    core_count: int = 8
    free: dict[str, int] = dataclasses.field(default_factory=lambda: {"/dev/shm": GIGABYTE, "/tmp": 50 * GIGABYTE})
    address: str | None = "10.0.0.7"
    root: bool = True
    namespaces: bool = True

    def python_version(self) -> tuple[int, int, int]:
        return self.python

    def python_command(self) -> str:
        return "/venv/bin/python"

    def system(self) -> str:
        return "Linux"

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def command(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.commands else None

    def java(self) -> Java | None:
        return self.found_java

    def requirements(self) -> list[str]:
        return list(self.required)

    def requirements_of(self, extra: str) -> list[str]:
        return [f"py{extra}>=2"]

    def installed_version(self, distribution: str) -> str | None:
        return self.installed.get(distribution)

    def total_memory_bytes(self) -> int:
        return self.memory

    def available_memory_bytes(self) -> int:
        return self.memory

    def cores(self) -> int:
        return self.core_count

    def free_bytes(self, folder: str) -> int | None:
        return self.free.get(folder)

    def temporary_folder(self) -> str:
        return "/tmp"

    def host_name(self) -> str:
        return "box"

    def address_of(self, host: str) -> str | None:
        return self.address

    def is_root(self) -> bool:
        return self.root

    def can_make_network_namespaces(self) -> bool:
        return self.namespaces


def find(machine: FakeMachine, subject: str) -> Finding:
    return next(finding for finding in examine(machine) if finding.subject == subject)


def verdicts(machine: FakeMachine) -> set[str]:
    return {finding.verdict for finding in examine(machine)}


def test_a_good_machine_has_nothing_to_complain_about() -> None:
    assert verdicts(FakeMachine()) == {"good"}


def test_missing_java_is_named_with_the_packages_that_bring_it() -> None:
    finding = find(FakeMachine(found_java=None), "Java")
    assert finding.verdict == "missing"
    assert "apt-get install openjdk-17" in finding.advice and "brew" in finding.advice


def test_an_old_java_is_as_good_as_none() -> None:
    finding = find(FakeMachine(found_java=Java("/opt/java8/bin/java", 8)), "Java")
    assert finding.verdict == "missing"
    assert "8 at /opt/java8/bin/java" in finding.found and "17 or newer" in finding.found


def test_a_java_home_that_leads_nowhere_is_blamed() -> None:
    machine = FakeMachine(found_java=Java("/gone/bin/java", None), variables={"JAVA_HOME": "/gone"})
    finding = find(machine, "Java")
    assert finding.verdict == "missing" and "JAVA_HOME is /gone" in finding.advice


def test_an_old_python_is_missing() -> None:
    assert find(FakeMachine(python=(3, 10, 4)), "Python").verdict == "missing"


def test_a_library_that_is_not_installed_is_named_with_its_bounds() -> None:
    finding = find(FakeMachine(installed={"pyspark": "4.3.0", "rich": "15.0.0"}), "polars")
    assert (finding.verdict, finding.advice) == ("missing", "pip install 'polars<3,>=2.1'")


def test_a_library_out_of_bounds_is_missing_too() -> None:
    finding = find(FakeMachine(installed={"pyspark": "4.1.1", "polars": "2.1.0", "rich": "15.0.0"}), "pyspark")
    assert finding.verdict == "missing" and "4.1.1, needed is <4.4,>=4.3" in finding.found


def test_connectors_that_are_not_installed_are_named_with_how_to_get_them() -> None:
    machine = FakeMachine()
    del machine.installed["pypostgres"]
    machine.installed["pydelta"] = "1.0"
    finding = find(machine, "connectors")
    assert (finding.verdict, finding.found) == ("poor", "kafka, redis, mariadb; not installed: postgres, delta")
    assert "pip install 'anabranch[postgres,delta]'" in finding.advice


def test_this_package_says_what_its_connectors_require() -> None:
    for extra in doctor_command.CONNECTORS:
        assert Machine().requirements_of(extra)


def test_lesser_libraries_share_a_line() -> None:
    assert find(FakeMachine(), "other libraries").found == "1 in fitting versions"


@pytest.mark.parametrize(
    ("machine", "subject", "words"),
    [
        (FakeMachine(memory=GIGABYTE), "memory", "--memory"),
        (FakeMachine(core_count=1), "cores", "one core"),
        (FakeMachine(free={"/dev/shm": 64_000_000, "/tmp": GIGABYTE}), "/dev/shm", "--shm-size"),
        (FakeMachine(free={"/tmp": GIGABYTE}), "/dev/shm", "--shm-size"),
        (FakeMachine(free={"/dev/shm": GIGABYTE, "/tmp": 1000}), "temporary files", "TMPDIR"),
        (FakeMachine(address=None), "host name", "SPARK_LOCAL_IP=127.0.0.1"),
        (FakeMachine(variables={"SPARK_HOME": "/opt/spark"}), "SPARK_HOME", "unset SPARK_HOME"),
        (FakeMachine(root=False), "cluster tests", "several hosts"),
        (FakeMachine(namespaces=False), "cluster tests", "several hosts"),
        (FakeMachine(commands=()), "cluster tests", "iproute2"),
    ],
)
def test_what_costs_speed_or_a_feature_is_poor_but_stops_nothing(
    machine: FakeMachine, subject: str, words: str
) -> None:
    finding = find(machine, subject)
    assert finding.verdict == "poor" and words in finding.advice
    assert "missing" not in verdicts(machine)


def test_a_full_temporary_folder_stops_flows() -> None:
    assert find(FakeMachine(free={"/dev/shm": GIGABYTE, "/tmp": 0}), "temporary files").verdict == "missing"


def test_workers_with_another_python_are_pointed_out() -> None:
    gone = FakeMachine(variables={"PYSPARK_PYTHON": "python2"})
    assert find(gone, "PYSPARK_PYTHON").verdict == "missing"
    other = FakeMachine(variables={"PYSPARK_PYTHON": "ip"})
    assert find(other, "PYSPARK_PYTHON").verdict == "poor"
    same = FakeMachine(variables={"PYSPARK_PYTHON": "/venv/bin/python"})
    assert verdicts(same) == {"good"}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_a_loopback_address_is_fine_with_a_word_about_clusters(address: str) -> None:
    finding = find(FakeMachine(address=address), "host name")
    assert finding.verdict == "good" and "on a cluster" in finding.found


def test_the_command_ends_with_1_when_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "Machine", lambda: FakeMachine(found_java=None))
    outcome = CliRunner().invoke(command.app, ["doctor"])
    assert outcome.exit_code == 1
    assert "✗  Java" in outcome.stdout and "Flows cannot run here: see Java above" in outcome.stdout


def test_the_command_ends_with_0_when_something_is_only_poor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "Machine", lambda: FakeMachine(root=False))
    outcome = CliRunner().invoke(command.app, ["doctor"])
    assert outcome.exit_code == 0
    assert "!  cluster tests" in outcome.stdout and "Flows can run here" in outcome.stdout


def test_the_real_machine_answers_every_question() -> None:
    findings = examine(Machine())
    assert {"Python", "Java", "pyspark", "memory", "cores", "host name"} <= {finding.subject for finding in findings}
    assert all(finding.found for finding in findings)
