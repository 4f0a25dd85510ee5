"""Loads to plan energy for: the paper's own figures, and any."""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.model.cluster import SlotId
from anabranch.placement.energy import FlowLoad, Host, SlotUse

# The paper's figures 1 to 4: components at levels, and who sends to whom.
A, B = (0, 0), (0, 1)
C, D1, D2, E = (1, 0), (1, 1), (1, 2), (1, 3)
F1, F2, G = (2, 0), (2, 1), (2, 2)
H, I = (3, 0), (3, 1)  # noqa: E741 - as the paper calls it
PAPER_SLOTS = (A, B, C, D1, D2, E, F1, F2, G, H, I)
PAPER_EDGES = (
    *((A, to) for to in (C, D1, D2)),
    *((B, to) for to in (D1, D2, E)),
    *((source, to) for source in (C, D1, D2) for to in (F1, F2)),
    *((source, G) for source in (D1, D2, E)),
    *((source, H) for source in (F1, F2)),
    *((source, I) for source in (F1, F2, G)),
)
PAPER_HOMES = {A: "n1", D1: "n1", F1: "n1", B: "n2", D2: "n2", F2: "n2", H: "n2", C: "n3", E: "n3", G: "n3", I: "n3"}
PAPER_HOSTS = tuple(Host(name, 4, 8_000, 1_000.0) for name in ("n1", "n2", "n3"))
PATH = (A, D1, F2, H)
"""Figure 4: the critical path."""


def paper_load(**cpu_seconds: float) -> FlowLoad:
    """Return a load under which the paper's path is critical; single slots may take something else."""
    slots = {slot: SlotUse(0.2 if slot in PATH else 0.1, 10) for slot in PAPER_SLOTS}
    named = {"a": A, "b": B, "c": C, "d1": D1, "d2": D2, "e": E, "f1": F1, "f2": F2, "g": G, "h": H, "i": I}
    slots |= {named[name]: SlotUse(seconds, 10) for name, seconds in cpu_seconds.items()}
    return FlowLoad(seconds=1.0, batches=1, rows=100, slots=slots, sent_bytes=dict.fromkeys(PAPER_EDGES, 10.0))


HOST_NAMES = ("h1", "h2", "h3", "h4")


@st.composite
def placed_loads(draw: st.DrawFn, most_slots: int = 4) -> tuple[tuple[Host, ...], FlowLoad, dict[SlotId, str]]:
    """Draw hosts, slots of up to three levels, what they send each other, and where they are."""
    hosts = tuple(
        Host(name, draw(st.integers(1, 4)), draw(st.integers(50, 400)), draw(st.sampled_from([0.0, 100.0, 1_000.0])))
        for name in HOST_NAMES[: draw(st.integers(1, 4))]
    )
    levels = draw(st.integers(1, 3))
    ids = [(level, number) for level in range(levels) for number in range(draw(st.integers(1, most_slots)))]
    slots = {slot: SlotUse(draw(st.floats(0, 1.0)), draw(st.integers(0, 80)), draw(st.integers(0, 50))) for slot in ids}
    pairs = [(one, other) for one in ids for other in ids if other[0] == one[0] + 1]
    sent = {pair: draw(st.floats(0, 60)) for pair in pairs}
    homes = {slot: draw(st.sampled_from(hosts)).id for slot in ids}
    return hosts, FlowLoad(1.0, draw(st.integers(1, 3)), 100, slots, sent, 0.01), homes
