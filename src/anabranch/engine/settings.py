"""How a flow is run, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, TypedDict
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, field_validator, model_validator

from anabranch.connectors.databases.history_table import HistoryDatabase
from anabranch.errors import FlowError, SinkError, name_alternatives
from anabranch.eventtime.durations import describe_duration, parse_duration
from anabranch.model.elasticity import Elasticity
from anabranch.model.energy import Energy
from anabranch.model.loads import LoadError
from anabranch.model.renamed import take_renamed
from anabranch.model.replicas import Replicas
from anabranch.model.routes import DEFAULT_BUCKETS, MOST_SLOTS
from anabranch.query.plan import PARALLELISMS, Parallelism
from anabranch.state.event_log import DEFAULT_KEPT_RECORDS, DEFAULT_KEPT_SUMMARY_BYTES

AVAILABLE_NOW = "available-now"
ONCE = "once"
CONTINUOUS = "continuous"
RENAMED = {"strategy": "parallelism"}
REDIS_SCHEMES = ("redis", "rediss", "unix")
LEAST_LATENCY_US = 50_000
_INTERVAL = re.compile(r"\d+(\.\d+)?\s*(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)")


class RunSettings(BaseModel):
    """Everything that ``flow.run`` and ``flow.start`` take besides the session."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: str = Field(description="where state, offsets and commits lie: a path, s3://, gs:// or az:// URL")
    trigger: str = Field(
        CONTINUOUS, description="'continuous' (as fast as data comes), an interval like '5s', 'available-now', 'once'"
    )
    latency: str | None = Field(
        None,
        description="a length of time such as '2s': batches are made as large as can be published within it, no larger",
    )
    drain: bool = Field(False, description="at the end, fire the windows that are still open")
    slots: int | None = Field(None, ge=1, le=MOST_SLOTS, description="slots of a stateful subquery; default: the cores")
    parallelism: Parallelism = Field("operator-set", description=f"one of {', '.join(PARALLELISMS)}")
    local_merge: bool = Field(True, description="aggregate before the exchange where the aggregates allow it")
    buckets: int = Field(DEFAULT_BUCKETS, ge=1, le=65_536, description="buckets of keys; fixed for a checkpoint's life")
    read_tasks: int | None = Field(None, ge=1, description="tasks that read a batch's splits; default: the cores")
    job_attempts: int = Field(3, ge=1, description="how often a failed Spark job is run again within its batch")
    kept_batches: int = Field(10, ge=2, description="batches that can be gone back to")
    kept_records: int = Field(
        DEFAULT_KEPT_RECORDS, ge=1, description="events that the history keeps as they are, at least; most are batches"
    )
    kept_summary_bytes: int = Field(
        DEFAULT_KEPT_SUMMARY_BYTES,
        ge=0,
        description="how much is kept of events before them, of which batches are sums",
    )
    takeover: bool = Field(False, description="fence off a driver that still seems to run on this checkpoint")
    drop_sources: tuple[str, ...] = Field(
        (), description="names of sources that the checkpoint has read and the flow does not read any more"
    )
    elasticity: InstanceOf[Elasticity] | None = Field(
        None, description="between how many executors the flow grows and shrinks with its load: ab.Elasticity(…)"
    )
    replicas: InstanceOf[Replicas] | None = Field(
        None, description="copies of state in other hosts' memory, to go on from when a host is lost: ab.Replicas(…)"
    )
    energy: InstanceOf[Energy] | None = Field(
        None, description="let hosts sleep that the load does not need, and tell what is drawn: ab.Energy(…)"
    )
    hot_copies: bool | None = Field(
        None,
        description="keep copies of state in hosts' memory; default: where the checkpoint lies on an object store or a "
        "network file system",
    )
    anchors: bool | None = Field(None, description="pin slots to executors; default: when there are several")
    control: str | None = Field(
        None, description="a Redis URL through which commands come, too; those in the checkpoint are always heard"
    )
    history_to: str | None = Field(
        None, description="a PostgreSQL URL to which the history is copied, into the table anabranch_history"
    )
    debug: bool = Field(False, description="show Spark's own traces, and where in the engine an error arose")

    @field_validator("trigger")
    @classmethod
    def _known_trigger(cls, trigger: str) -> str:
        if trigger in (AVAILABLE_NOW, ONCE, CONTINUOUS) or _INTERVAL.fullmatch(trigger):
            return trigger
        msg = f"{trigger!r} is no trigger; use {CONTINUOUS!r}, {AVAILABLE_NOW!r}, {ONCE!r} or an interval such as '5s'"
        raise ValueError(msg)

    @field_validator("latency")
    @classmethod
    def _usable_latency(cls, latency: str | None) -> str | None:
        if latency is not None:
            try:
                length_us = parse_duration(latency, "latency")
            except FlowError as error:
                raise ValueError(str(error)) from None
            if length_us < LEAST_LATENCY_US:
                msg = f"{latency!r} is less than {describe_duration(LEAST_LATENCY_US)}, and no batch is as quick; "
                msg += "give a length of time such as '2s'"
                raise ValueError(msg)
        return latency

    @field_validator("elasticity", mode="before")
    @classmethod
    def _usable_elasticity(cls, elasticity: object) -> object:
        return _read_named(Elasticity, elasticity)

    @field_validator("energy", mode="before")
    @classmethod
    def _usable_energy(cls, energy: object) -> object:
        return _read_named(Energy, energy)

    @field_validator("replicas", mode="before")
    @classmethod
    def _usable_replicas(cls, replicas: object) -> object:
        return _read_named(Replicas, replicas)

    @model_validator(mode="after")
    def _slots_that_stay(self) -> RunSettings:
        if self.replicas is not None and self.anchors is False:
            msg = "replicas are copied from where slots are at home, and anchors=False lets them run anywhere; "
            msg += "leave one of them out"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _slots_to_move(self) -> RunSettings:
        named = {"elasticity": self.elasticity, "energy": self.energy}
        wanting = [name for name, given in named.items() if given is not None]
        if wanting and self.anchors is False:
            msg = (
                f"{wanting[0]} lets slots leave an executor before it goes, and anchors=False lets them run anywhere; "
            )
            msg += "leave one of them out"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _bound_to_keep(self) -> RunSettings:
        if self.energy is not None and self.interval_seconds >= self.energy.latency_seconds:
            msg = f"energy is to keep results within {self.energy.latency_seconds:g} s, and a row may wait for "
            msg += f"trigger={self.trigger!r} as long; give a shorter interval, or a larger latency_seconds"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _batches_to_limit(self) -> RunSettings:
        if self.latency is not None and self.trigger == ONCE:
            msg = f"latency is learnt from one batch for the next, and trigger={ONCE!r} makes only one; "
            msg += f"use {AVAILABLE_NOW!r}, which makes as many as it takes, or leave latency out"
            raise ValueError(msg)
        return self

    @property
    def latency_seconds(self) -> float | None:
        """The target for what a batch takes from its trigger until it is published."""
        return None if self.latency is None else parse_duration(self.latency, "latency") / 1e6

    @property
    def interval_seconds(self) -> float:
        """From the beginning of a batch to that of the next one, as the trigger says it; 0 if they follow at once."""
        if self.trigger in (AVAILABLE_NOW, ONCE, CONTINUOUS):
            return 0.0
        return parse_duration(self.trigger, "trigger") / 1e6

    @field_validator("parallelism", mode="before")
    @classmethod
    def _no_number(cls, parallelism: object) -> object:
        if isinstance(parallelism, int):
            msg = f"{parallelism} is a number, and how many tasks there are is said by slots={parallelism}; "
            msg += f"parallelism is how operators are put into tasks: {', '.join(PARALLELISMS)}"
            raise ValueError(msg)
        return parallelism

    @field_validator("control")
    @classmethod
    def _usable_control(cls, control: str | None) -> str | None:
        if control is None:
            return None
        scheme = urlsplit(control).scheme
        _ = urlsplit(control).port  # raises if it is no number
        if scheme not in REDIS_SCHEMES:
            known = ", ".join(f"{name}://" for name in REDIS_SCHEMES)
            msg = f"{scheme or control!r} is no way to send commands; use one of {known}, or leave control out"
            raise ValueError(msg)
        if find_spec("redis") is None:
            msg = "commands through Redis need the package redis; install it: pip install 'anabranch[redis]'"
            raise ValueError(msg)
        return control

    @field_validator("history_to")
    @classmethod
    def _usable_history(cls, history_to: str | None) -> str | None:
        if history_to is not None:
            try:
                HistoryDatabase.check_url(history_to)
            except SinkError as error:
                raise ValueError(str(error)) from None
        return history_to


def _read_named(kind: type[Elasticity] | type[Replicas] | type[Energy], given: object) -> object:
    """Return settings that files give by name."""
    if not isinstance(given, Mapping):
        return given
    try:
        return kind.from_names(given)
    except LoadError as error:
        raise ValueError(str(error)) from None


class RunKeywords(TypedDict, total=False):
    """The settings as keywords, which type checkers and editors see: those of ``RunSettings`` but the checkpoint."""

    trigger: str
    latency: str | None
    drain: bool
    slots: int | None
    parallelism: Parallelism
    local_merge: bool
    buckets: int
    read_tasks: int | None
    job_attempts: int
    kept_batches: int
    kept_records: int
    kept_summary_bytes: int
    takeover: bool
    elasticity: Elasticity | None
    replicas: Replicas | None
    energy: Energy | None
    hot_copies: bool | None
    anchors: bool | None
    control: str | None
    drop_sources: tuple[str, ...]
    history_to: str | None
    debug: bool


def make_settings(**given: Any) -> RunSettings:
    """Return checked settings, or raise ``FlowError`` that names the allowed ones."""
    try:
        return RunSettings(**take_renamed("run", given, RENAMED))
    except ValidationError as error:
        problems = []
        for item in error.errors():
            name = ".".join(str(part) for part in item["loc"])
            if item["type"] == "extra_forbidden":
                problems.append(f"unknown setting {name!r}; {name_alternatives(name, RunSettings.model_fields)}")
            else:
                # Ours come as "Value error, …"; pydantic's own say what is allowed, but not what was found.
                ours = item["type"] == "value_error"
                text = str(item["ctx"]["error"]) if ours else f"{item['msg'].lower()}, found {item['input']!r}"
                problems.append(f"{name}: {text}" if name else text)
        raise FlowError("; ".join(problems)) from error
