"""A flow's program on its way to Spark's Python workers, which keep it."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from dataclasses import dataclass, replace
from functools import lru_cache

from pyspark import cloudpickle

from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import FlowError
from anabranch.spark.worker_process import find_owner


@dataclass(frozen=True, slots=True)
class PickledProgram:
    """A program as bytes, unpickled once a worker process."""

    digest: str
    pickled: bytes
    shares_host_out: bool = False
    """Each executor stands for a host, with a part of the memory that copies of state are kept in."""

    @classmethod
    def of(cls, program: FlowProgram, *, shares_host_out: bool = False) -> PickledProgram:
        """Return a program in the form that is sent."""
        pickled: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        return cls(hashlib.blake2b(pickled, digest_size=16).hexdigest(), pickled, shares_host_out)

    def load(self) -> FlowProgram:
        """Return the program; raise ``FlowError`` if this worker lacks a module that it needs."""
        if self.digest not in _programs:
            _programs.clear()
            try:
                program = cloudpickle.loads(self.pickled)
                memory = f"executor-{find_owner(os.getpid()).executor}" if self.shares_host_out else ""
                _programs[self.digest] = replace(program, memory=memory)
            except ModuleNotFoundError as error:
                msg = (
                    f"workers cannot import {error.name!r}, which the flow uses: install it there, send it along by "
                    f'spark.sparkContext.addPyFile("{error.name}.py"), or define what the flow needs in the script'
                )
                raise FlowError(msg) from error
        freeze_imports(len(sys.modules))
        return _programs[self.digest]


_programs: dict[str, FlowProgram] = {}


@lru_cache(maxsize=1)
def freeze_imports(modules: int) -> None:
    """Take what imported modules made, which stays for the process's life, out of garbage collection.

    PySpark collects garbage after every task, and to look through all of that takes 50 ms: with sixteen slots on two
    cores, half of a small batch's time. Done again only when there are more modules; tasks begin with garbage gone,
    so hardly any is kept by this.
    """
    gc.freeze()
