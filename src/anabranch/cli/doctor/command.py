"""``anabranch doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

from anabranch.cli.doctor.machine import Machine
from anabranch.cli.formats import format_bytes
from anabranch.cli.reporting import FAILED, open_console

if TYPE_CHECKING:
    from rich.table import Table

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
LEAST_MEMORY_BYTES = 2 * 10**9
LEAST_SHARED_MEMORY_BYTES = 256 * 10**6
LEAST_FREE_BYTES = 10**9
SHOWN_LIBRARIES = ("pyspark", "polars", "pyarrow")
CONNECTORS = ("kafka", "redis", "postgres", "mariadb", "delta")
"""Optional parts of the package, each with libraries of its own."""

_JAVA_ADVICE = (
    "Debian, Ubuntu: apt-get install openjdk-17-jre-headless; Fedora: dnf install java-latest-openjdk-headless; "
    "macOS: brew install openjdk@17; or set JAVA_HOME to another one"
)

Verdict = Literal["good", "poor", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. What is ``poor`` costs speed or a feature; what is ``missing`` stops flows."""

    subject: str
    verdict: Verdict
    found: str
    advice: str = ""


def doctor() -> None:
    """Check Java, Python libraries, memory, disks and the network, and say how to get what is missing.

    Ends with 1 if something is missing that flows need; ! marks what only costs speed or a feature.
    """
    findings = examine(Machine())
    console = open_console()
    console.print(tabulate_findings(findings))
    missing = [finding.subject for finding in findings if finding.verdict == "missing"]
    if missing:
        console.print(f"[red]Flows cannot run here: see {', '.join(missing)} above.[/red]")
        raise typer.Exit(FAILED)
    console.print("[green]Flows can run here.[/green]")


def examine(machine: Machine) -> list[Finding]:
    """Return what was found, in the order of the table."""
    checks: list[Callable[[Machine], Iterator[Finding]]] = [
        _check_python,
        _check_java,
        _check_libraries,
        _check_connectors,
        _check_spark_variables,
        _check_processors,
        _check_disks,
        _check_host_name,
        _check_cluster_tests,
    ]
    return [finding for check in checks for finding in check(machine)]


def tabulate_findings(findings: list[Finding]) -> Table:
    """Return the findings as a table; advice stands below what it is for."""
    from rich.table import Table
    from rich.text import Text

    marks: dict[Verdict, Text] = {
        "good": Text("✓", style="green"),
        "poor": Text("!", style="yellow"),
        "missing": Text("✗", style="bold red"),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        words = Text(finding.found)
        if finding.advice and finding.verdict != "good":
            words.append(f"\n→ {finding.advice}", style="yellow" if finding.verdict == "poor" else "red")
        table.add_row(marks[finding.verdict], finding.subject, words)
    return table


def _check_python(machine: Machine) -> Iterator[Finding]:
    version = machine.python_version()
    found = f"{'.'.join(map(str, version))} at {machine.python_command()}"
    verdict: Verdict = "good" if version[:2] >= OLDEST_PYTHON else "missing"
    yield Finding("Python", verdict, found, f"make the environment with Python {_dotted(OLDEST_PYTHON)} or newer")


def _check_java(machine: Machine) -> Iterator[Finding]:
    java = machine.java()
    home = machine.variable("JAVA_HOME")
    if java is None:
        yield Finding("Java", "missing", f"no java on PATH; Spark needs {OLDEST_JAVA} or newer", _JAVA_ADVICE)
    elif java.major is None:
        advice = f"JAVA_HOME is {home}: point it to a Java {OLDEST_JAVA} or unset it" if home else _JAVA_ADVICE
        yield Finding("Java", "missing", f"{java.command} does not run", advice)
    elif java.major < OLDEST_JAVA:
        found = f"{java.major} at {java.command}; Spark needs {OLDEST_JAVA} or newer"
        yield Finding("Java", "missing", found, _JAVA_ADVICE)
    else:
        yield Finding("Java", "good", f"{java.major} at {java.command}{' (JAVA_HOME)' if home else ''}")


def _check_libraries(machine: Machine) -> Iterator[Finding]:
    from packaging.requirements import Requirement

    fitting = 0
    for requirement in map(Requirement, machine.requirements()):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = machine.installed_version(requirement.name)
        wanted = f"pip install '{requirement.name}{requirement.specifier}'"
        if version is None:
            yield Finding(requirement.name, "missing", "not installed", wanted)
        elif not requirement.specifier.contains(version, prereleases=True):
            yield Finding(requirement.name, "missing", f"{version}, needed is {requirement.specifier}", wanted)
        elif requirement.name in SHOWN_LIBRARIES:
            yield Finding(requirement.name, "good", version)
        else:
            fitting += 1
    if fitting:
        yield Finding("other libraries", "good", f"{fitting} in fitting versions")


def _check_connectors(machine: Machine) -> Iterator[Finding]:
    from packaging.requirements import Requirement

    lacking = []
    for extra in CONNECTORS:
        needed = map(Requirement, machine.requirements_of(extra))
        versions = [(each, machine.installed_version(each.name)) for each in needed]
        if not all(version and each.specifier.contains(version, prereleases=True) for each, version in versions):
            lacking.append(extra)
    there = ", ".join(extra for extra in CONNECTORS if extra not in lacking) or "none"
    found = f"{there}; not installed: {', '.join(lacking)}" if lacking else there
    advice = f"only flows that use them need them: pip install 'anabranch[{','.join(lacking)}]'"
    yield Finding("connectors", "poor" if lacking else "good", found, advice)


def _check_spark_variables(machine: Machine) -> Iterator[Finding]:
    home = machine.variable("SPARK_HOME")
    if home is not None:
        advice = "unset SPARK_HOME unless that Spark has the same version as PySpark here"
        yield Finding("SPARK_HOME", "poor", f"{home}: PySpark starts this Spark, not its own", advice)
    workers = machine.variable("PYSPARK_PYTHON")
    if workers is not None and workers != machine.python_command():
        verdict: Verdict = "poor" if machine.command(workers) else "missing"
        advice = f"unset PYSPARK_PYTHON, or set it to {machine.python_command()}: workers need the same libraries"
        yield Finding("PYSPARK_PYTHON", verdict, f"{workers} is another Python than this one", advice)


def _check_processors(machine: Machine) -> Iterator[Finding]:
    cores = machine.cores()
    advice = "with one core, reading and slots take turns"
    yield Finding("cores", "good" if cores > 1 else "poor", str(cores), advice)
    available = machine.available_memory_bytes()
    found = f"{format_bytes(machine.total_memory_bytes())}, {format_bytes(available)} available"
    verdict: Verdict = "good" if available >= LEAST_MEMORY_BYTES else "poor"
    yield Finding("memory", verdict, found, "the JVM and its Python workers want 2 GB; close something, or --memory 1g")


def _check_disks(machine: Machine) -> Iterator[Finding]:
    if machine.system() == "Linux":
        shared = machine.free_bytes("/dev/shm")
        found = "there is none" if shared is None else f"{format_bytes(shared)} free"
        enough = shared is not None and shared >= LEAST_SHARED_MEMORY_BYTES
        advice = "hot state goes to the temporary folder instead; in containers, raise --shm-size"
        yield Finding("/dev/shm", "good" if enough else "poor", found, advice)
    folder = machine.temporary_folder()
    free = machine.free_bytes(folder)
    found = f"{folder} cannot be read" if free is None else f"{folder}, {format_bytes(free)} free"
    verdict: Verdict = "missing" if not free else "good" if free >= LEAST_FREE_BYTES else "poor"
    advice = "make room, or point TMPDIR and SPARK_LOCAL_DIRS to a larger disk: shuffles go there"
    yield Finding("temporary files", verdict, found, advice)


def _check_host_name(machine: Machine) -> Iterator[Finding]:
    host = machine.host_name()
    local = machine.variable("SPARK_LOCAL_IP")
    if local is not None:
        yield Finding("host name", "good", f"{host}; Spark binds to {local} (SPARK_LOCAL_IP)")
        return
    address = machine.address_of(host)
    if address is None:
        advice = "export SPARK_LOCAL_IP=127.0.0.1 for local runs, or add the name to /etc/hosts"
        yield Finding("host name", "poor", f"{host} resolves to nothing", advice)
    elif address.startswith("127."):
        remark = "fine here; on a cluster, set SPARK_LOCAL_IP to an address that executors reach"
        yield Finding("host name", "good", f"{host} is {address}, a loopback address: {remark}")
    else:
        yield Finding("host name", "good", f"{host} is {address}")


def _check_cluster_tests(machine: Machine) -> Iterator[Finding]:
    lacking = [f"the command {name}" for name in ("ip", "tc") if machine.command(name) is None]
    if machine.system() != "Linux":
        lacking = ["Linux"]
    elif not machine.is_root():
        lacking.append("root")
    elif not machine.can_make_network_namespaces():
        lacking.append("the right to make network namespaces")
    found = "root, ip, tc and network namespaces" if not lacking else f"no {', no '.join(lacking)}"
    advice = "only tests with several hosts on one machine need it (Debian: apt-get install iproute2)"
    yield Finding("cluster tests", "poor" if lacking else "good", found, advice)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
