from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli.sessions import read_config
from anabranch.engine.interrupts import Interrupts

REDIRECTING = """
import subprocess, sys
from pathlib import Path
from anabranch.cli.sessions import children_write_into

print("before")
with children_write_into(Path(sys.argv[1])):
    late = "import sys; input(); print('late out'); print('late err', file=sys.stderr)"
    child = subprocess.Popen([sys.executable, "-c", late], stdin=subprocess.PIPE)
    subprocess.run([sys.executable, "-c", "print('out')"], check=True)
print("after")
child.communicate(b"go\\n")
"""


def test_children_write_into_the_file_all_their_life_and_the_command_does_not(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-c", REDIRECTING, str(log)], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("before\nafter\n", "")
    assert sorted(log.read_text(encoding="utf-8").split("\n")) == ["", "late err", "late out", "out"]


def test_spark_settings_are_pairs() -> None:
    assert read_config(["spark.a=1", "spark.b=x=y"]) == {"spark.a": "1", "spark.b": "x=y"}
    for text in ("spark.a", "=1"):
        with pytest.raises(ValueError, match=r"spark\.some\.key=value"):
            read_config([text])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_is_noted_and_the_second_raises(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert not interrupts.requested
        os.kill(os.getpid(), number)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
