"""What ``doctor`` looks at on this machine, one small question each."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Java:
    """A java command and its major version; None if it does not run."""

    command: str
    major: int | None


class Machine:
    """Answers about the real machine; tests answer differently."""

    def python_version(self) -> tuple[int, int, int]:
        """Return the version of this interpreter."""
        return sys.version_info[:3]

    def python_command(self) -> str:
        """Return where this interpreter lies."""
        return sys.executable

    def system(self) -> str:
        """Return the name of the operating system: Linux, Darwin, Windows."""
        return platform.system()

    def variable(self, name: str) -> str | None:
        """Return an environment variable, or None if it is empty or not set."""
        return os.environ.get(name) or None

    def command(self, name: str) -> str | None:
        """Return the path of a command, or None."""
        return shutil.which(name)

    def java(self) -> Java | None:
        """Return the Java that Spark would start: JAVA_HOME wins over PATH."""
        home = self.variable("JAVA_HOME")
        command = str(Path(home) / "bin" / "java") if home else self.command("java")
        return Java(command, _java_version(command)) if command else None

    def requirements(self) -> list[str]:
        """Return what this package requires, as its installation says: ``polars<3,>=2.1``."""
        from importlib import metadata

        return [text for text in metadata.requires("anabranch") or [] if "extra ==" not in text]

    def requirements_of(self, extra: str) -> list[str]:
        """Return what an optional part of this package requires: ``redis<9,>=8``."""
        from importlib import metadata

        marked = [text.replace("'", '"').partition(";") for text in metadata.requires("anabranch") or []]
        return [text.strip() for text, _, marker in marked if f'extra == "{extra}"' in marker]

    def installed_version(self, distribution: str) -> str | None:
        """Return the version of an installed distribution, or None."""
        from importlib import metadata

        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None

    def total_memory_bytes(self) -> int:
        """Return the machine's memory, or the container's limit if that is lower."""
        import psutil

        total = int(psutil.virtual_memory().total)
        try:
            limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        except OSError:
            return total
        return min(total, int(limit)) if limit.isdigit() else total

    def available_memory_bytes(self) -> int:
        """Return the memory that new processes could take."""
        import psutil

        return min(int(psutil.virtual_memory().available), self.total_memory_bytes())

    def cores(self) -> int:
        """Return the cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def free_bytes(self, folder: str) -> int | None:
        """Return the free room of a folder's file system, or None if there is no such folder."""
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            return None

    def temporary_folder(self) -> str:
        """Return where temporary files go."""
        return tempfile.gettempdir()

    def host_name(self) -> str:
        """Return this host's name."""
        return socket.gethostname()

    def address_of(self, host: str) -> str | None:
        """Return the address that a host name resolves to, or None."""
        try:
            return socket.gethostbyname(host)
        except OSError:
            return None

    def is_root(self) -> bool:
        """Say whether this process may do everything."""
        return hasattr(os, "geteuid") and os.geteuid() == 0

    def can_make_network_namespaces(self) -> bool:
        """Try to make a network namespace, which leaves nothing behind."""
        command = self.command("unshare")
        if command is None:
            return False
        try:
            done = subprocess.run([command, "--net", "true"], capture_output=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def _java_version(command: str) -> int | None:
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "1.8.0_292" is Java 8, "17.0.15" is Java 17.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None
