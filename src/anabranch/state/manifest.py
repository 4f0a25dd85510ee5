"""The manifest: all that a committed batch consists of, as checksummed JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import RunRef, StagedFile
from anabranch.model.exchanges import ReaderBuffer
from anabranch.state.checksums import checksum_of_json
from anabranch.state.engine_state import EngineState

FORMAT_VERSION = 3
"""2 has routes in place of a bucket map, handoffs, and rows of runs that are gone; 3 has what readers hold back."""
READ_VERSIONS = (1, 2, 3)
INITIAL_BATCH = -1
"""The batch number of given initial state, committed before the first batch of data."""


@dataclass(frozen=True, slots=True)
class LevelState:
    """One stateful operator: the routes that the next batch must use, and the runs of every slot."""

    operator: str
    """A name that is stable between starts of the same flow."""
    routes: Mapping[str, Any]
    """Plain JSON data."""
    runs: tuple[tuple[RunRef, ...], ...]
    """By slot, oldest run first."""
    handoffs: tuple[tuple[RunRef, ...], ...] = ()
    """By slot, what others wrote for it in this batch: the next one takes it in first."""

    @property
    def live_rows(self) -> int:
        return sum(ref.live_rows for ref in self.refs())

    @property
    def state_bytes(self) -> int:
        return sum(ref.bytes for ref in self.refs())

    def refs(self) -> Iterator[RunRef]:
        """Yield every run of every slot, handoffs included."""
        for slot in (*self.runs, *self.handoffs):
            yield from slot

    def refs_of(self, slot: int) -> tuple[RunRef, ...]:
        """Return the runs of a slot, and those that it is about to take in."""
        own = self.runs[slot] if slot < len(self.runs) else ()
        return own + (self.handoffs[slot] if slot < len(self.handoffs) else ())

    @property
    def slots(self) -> int:
        return max(len(self.runs), len(self.handoffs))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "operator": self.operator,
            "routes": dict(self.routes),
            "runs": [[ref.to_json() for ref in slot] for slot in self.runs],
            "handoffs": [[ref.to_json() for ref in slot] for slot in self.handoffs],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LevelState:
        """Read what ``to_json`` wrote."""
        return cls(
            operator=data["operator"],
            routes=data["routes"] if "routes" in data else _routes_of_format_1(data["bucket_map"]),
            runs=tuple(tuple(RunRef.from_json(ref) for ref in slot) for slot in data["runs"]),
            handoffs=tuple(tuple(RunRef.from_json(ref) for ref in slot) for slot in data.get("handoffs", ())),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The commit of a batch, and all that the next one starts from. What no manifest names does not exist."""

    flow: str
    flow_structure: Any
    """What the checkpoint depends on in the flow, as plain JSON data, compared by equality."""
    batch: int
    epoch: int
    query_id: str
    """Spark's id of the streaming query."""
    start_offset: Any
    end_offset: Any
    """Where the sources stood before and after the batch, as plain JSON data."""
    levels: tuple[LevelState, ...] = ()
    watermarks: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[int, tuple[StagedFile, ...]] = field(default_factory=dict)
    totals: Mapping[str, int | float] = field(default_factory=dict)
    """Counters since the flow's first batch."""
    problems: tuple[str, ...] = ()
    reader_buffers: Mapping[str, tuple[ReaderBuffer, ...]] = field(default_factory=dict)
    """Operator → what each reader holds back of it."""
    created_at: float = 0.0
    """Seconds since 1970, by the driver's clock; for people, never compared."""
    engine: EngineState = field(default_factory=EngineState)
    format_version: int = FORMAT_VERSION

    def files(self) -> Iterator[RunRef]:
        """Yield every run that this batch needs, and those that could rebuild one of them."""
        for level in self.levels:
            for ref in level.refs():
                yield ref
                yield from ref.made_from
        for _, _, ref in self.held_runs():
            yield ref
            yield from ref.made_from

    def held_runs(self) -> Iterator[tuple[str, int, RunRef]]:
        """Yield (operator, reader, run) of everything that readers hold back."""
        for operator, buffers in self.reader_buffers.items():
            for buffer in buffers:
                for ref in buffer.runs:
                    yield operator, buffer.reader, ref

    @property
    def state_rows(self) -> int:
        return sum(level.live_rows for level in self.levels) + sum(ref.live_rows for _, _, ref in self.held_runs())

    @property
    def state_bytes(self) -> int:
        return sum(level.state_bytes for level in self.levels) + sum(ref.bytes for _, _, ref in self.held_runs())

    def without_sources_before(self, batch: int) -> Manifest:
        """Forget what runs older than a batch were made from, once those files may be gone."""
        return replace(
            self,
            levels=tuple(
                replace(level, runs=tuple(tuple(_forget_sources(ref, batch) for ref in slot) for slot in level.runs))
                for level in self.levels
            ),
            reader_buffers={
                operator: tuple(
                    replace(buffer, runs=tuple(_forget_sources(ref, batch) for ref in buffer.runs))
                    for buffer in buffers
                )
                for operator, buffers in self.reader_buffers.items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "format_version": self.format_version,
            "flow": self.flow,
            "flow_structure": self.flow_structure,
            "batch": self.batch,
            "epoch": self.epoch,
            "query_id": self.query_id,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "levels": [level.to_json() for level in self.levels],
            "watermarks": dict(self.watermarks),
            "sinks": {str(sink): [staged.to_json() for staged in files] for sink, files in self.sinks.items()},
            "totals": dict(self.totals),
            "problems": list(self.problems),
            # Format 3 calls what readers hold back so, here and in each buffer.
            "lanes": {
                operator: [buffer.to_json() for buffer in buffers] for operator, buffers in self.reader_buffers.items()
            },
            "created_at": self.created_at,
            "engine": self.engine.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Read what ``to_json`` wrote; raise ``CheckpointError`` for another format version."""
        _check_version(data.get("format_version"))
        return cls(
            flow=data["flow"],
            flow_structure=data["flow_structure"],
            batch=data["batch"],
            epoch=data["epoch"],
            query_id=data["query_id"],
            start_offset=data["start_offset"],
            end_offset=data["end_offset"],
            levels=tuple(LevelState.from_json(level) for level in data["levels"]),
            watermarks=data["watermarks"],
            sinks={
                int(sink): tuple(StagedFile.from_json(staged) for staged in files)
                for sink, files in data["sinks"].items()
            },
            totals=data["totals"],
            problems=tuple(data["problems"]),
            reader_buffers={
                operator: tuple(ReaderBuffer.from_json(buffer) for buffer in buffers)
                for operator, buffers in data.get("lanes", {}).items()
            },
            created_at=data["created_at"],
            engine=EngineState.from_json(data["engine"]),
        )

    def encode(self) -> bytes:
        """Return the file's text: the manifest and the checksum of itself."""
        body = self.to_json()
        return json.dumps({"checksum": checksum_of_json(body), "manifest": body}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes, file: str) -> Manifest:
        """Read what ``encode`` wrote; ``file`` is named in errors."""
        try:
            document = json.loads(content)
            body, checksum = document["manifest"], document["checksum"]
            version = body.get("format_version")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"manifest {file} cannot be read: {error}"
            raise StateDamaged(msg) from error
        # The version comes first: another format may well compute its checksum differently.
        _check_version(version, file)
        if checksum != checksum_of_json(body):
            msg = f"manifest {file} has checksum {checksum_of_json(body)}, but says {checksum}"
            raise StateDamaged(msg)
        return cls.from_json(body)


def plain_json(value: Any) -> Any:
    """Return a value as it will be read back: tuples become lists, keys become strings."""
    return json.loads(json.dumps(value))


def _forget_sources(ref: RunRef, batch: int) -> RunRef:
    return replace(ref, made_from=()) if ref.made_from and ref.batch < batch else ref


def _routes_of_format_1(bucket_map: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "base": {"kind": "buckets", **bucket_map},
        "table": {"keys": [], "slots": [], "shares": []},
        "splitter": None,
    }


def _check_version(found: Any, file: str = "a manifest") -> None:
    if found not in READ_VERSIONS:
        advice = (
            "install a newer anabranch"
            if isinstance(found, int) and found > FORMAT_VERSION
            else "start a new checkpoint"
        )
        read = f"{READ_VERSIONS[0]} to {READ_VERSIONS[-1]}"
        msg = f"{file} has checkpoint format {found}; this version reads format {read}: {advice}"
        raise CheckpointError(msg)
