"""State that survives: runs, manifests, epochs, and the one store that they lie in."""

from anabranch.state.checkpoint import Checkpoint
from anabranch.state.checksums import checksum_of
from anabranch.state.copies.hot import HotCopies, open_hot_copies
from anabranch.state.engine_state import EngineState
from anabranch.state.epochs import Lease, Owner, check_epoch, take_epoch
from anabranch.state.manifest import FORMAT_VERSION, INITIAL_BATCH, LevelState, Manifest
from anabranch.state.repair import (
    Problem,
    Recovered,
    advance_on_intact_runs,
    explain_damage,
    newest_intact_batch,
    verify,
)
from anabranch.state.retention import Retention, Swept
from anabranch.state.rollback import Rollback, roll_back
from anabranch.state.runs import RunDamaged, RunFiles, WriteName
from anabranch.state.slots import RunsOfSlot
from anabranch.state.store import AlreadyExists, Entry, Store, StoreFull, open_store

__all__ = [
    "FORMAT_VERSION",
    "INITIAL_BATCH",
    "AlreadyExists",
    "Checkpoint",
    "EngineState",
    "Entry",
    "HotCopies",
    "Lease",
    "LevelState",
    "Manifest",
    "Owner",
    "Problem",
    "Recovered",
    "Retention",
    "Rollback",
    "RunDamaged",
    "RunFiles",
    "RunsOfSlot",
    "Store",
    "StoreFull",
    "Swept",
    "WriteName",
    "advance_on_intact_runs",
    "check_epoch",
    "checksum_of",
    "explain_damage",
    "newest_intact_batch",
    "open_hot_copies",
    "open_store",
    "roll_back",
    "take_epoch",
    "verify",
]
