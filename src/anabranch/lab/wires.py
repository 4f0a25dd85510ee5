"""What a wire lets through: its limits as rules for the kernel's queues, and what crossed it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anabranch.lab.errors import LabError

_QUEUE_MS = 200
_SMALLEST_BURST_BYTES = 64 * 1024
# Tokens come once a tick of the kernel's clock, 100 ticks a second at the fewest: a burst must last for one.
_TICKS_A_SECOND = 100
# Packets that are on their way at once; the kernel's own 1,000 are 10 ms of a fast wire.
_DELAYED_PACKETS = 100_000


@dataclass(frozen=True, slots=True)
class WireLimit:
    """What a wire lets through, and how long it takes, each way; None: as much and as soon as the machine can."""

    mbit: float | None = None
    delay_ms: float | None = None

    def __post_init__(self) -> None:
        if self.mbit is not None and self.mbit <= 0:
            msg = f"a wire of {self.mbit:g} Mbit/s lets nothing through; to take it out, cut the host off"
            raise LabError(msg)
        if self.delay_ms is not None and self.delay_ms <= 0:
            msg = f"a delay of {self.delay_ms:g} ms is none; leave it out, or lift the limit"
            raise LabError(msg)

    @property
    def rules(self) -> tuple[tuple[str, ...], ...]:
        """Return the queues of one end of the wire, the outer one first: what follows ``tc qdisc add dev NAME``."""
        places = [("root",), ("parent", "1:1")]
        rules: list[tuple[str, ...]] = []
        if self.delay_ms is not None:
            delay = ("netem", "delay", f"{self.delay_ms:g}ms", "limit", str(_DELAYED_PACKETS))
            rules.append((*places.pop(0), "handle", "1:", *delay))
        if self.mbit is not None:
            bits = round(self.mbit * 1_000_000)
            burst = max(_SMALLEST_BURST_BYTES, bits // 8 // _TICKS_A_SECOND)
            rate = ("tbf", "rate", f"{bits}bit", "burst", f"{burst}b", "latency", f"{_QUEUE_MS}ms")
            rules.append((*places.pop(0), *rate))
        return tuple(rules)

    def describe(self) -> str:
        """Return the limit in words."""
        words = [f"{self.mbit:g} Mbit/s"] if self.mbit is not None else []
        return ", ".join([*words, f"{self.delay_ms:g} ms"] if self.delay_ms is not None else words)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What crossed a wire, headers of Ethernet included."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int = 0
    received_packets: int = 0

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(
            self.sent_bytes - earlier.sent_bytes,
            self.received_bytes - earlier.received_bytes,
            self.sent_packets - earlier.sent_packets,
            self.received_packets - earlier.received_packets,
        )

    @property
    def seen_from_the_other_end(self) -> Traffic:
        """Return the same: what one end of a wire receives is what the other sends."""
        return Traffic(self.received_bytes, self.sent_bytes, self.received_packets, self.sent_packets)


def read_link(link: str) -> Traffic:
    """Return what an interface of this machine, the end of a wire or a bridge, has sent and received."""
    names = ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")
    return Traffic(*(int((_LINKS / link / "statistics" / name).read_text()) for name in names))


def has_link(link: str) -> bool:
    """Say whether this machine has such an interface."""
    return (_LINKS / link).exists()


def is_up(link: str) -> bool:
    """Say whether an interface is in use; one that was taken out is not."""
    return bool(int((_LINKS / link / "flags").read_text(), 16) & _UP)


_LINKS = Path("/sys/class/net")
_UP = 0x1
