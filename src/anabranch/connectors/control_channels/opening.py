"""The channels that a flow listens to."""

from __future__ import annotations

import time

from anabranch.connectors.control_channels.checkpoint_files import FileChannel
from anabranch.control.commands import CommandChannel
from anabranch.state.epochs import Lease


def open_channels(lease: Lease, flow: str, redis_url: str | None) -> list[CommandChannel]:
    """Return the channels that a flow listens to: its checkpoint, and Redis where that is set up."""
    channels: list[CommandChannel] = [FileChannel(lease.store, lease.epoch, time.time())]
    if redis_url is not None:
        # The package is an optional one; settings have seen to it that it is there.
        from anabranch.connectors.control_channels.redis_messages import RedisChannel

        channels.append(RedisChannel(redis_url, flow))
    return channels
