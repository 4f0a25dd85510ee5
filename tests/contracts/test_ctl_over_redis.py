"""``anabranch ctl`` towards a flow that listens through Redis."""

from __future__ import annotations

from pathlib import Path

from anabranch.connectors.control_channels.redis_messages import RedisChannel
from servers.redis import RedisServer
from unit.cli.flows import write_flow
from unit.cli.played_flow import PlayedFlow, invoke, plain


def test_a_flow_is_reached_through_redis_by_its_name_or_its_file(tmp_path: Path) -> None:
    server = RedisServer()
    server.start()
    channel = RedisChannel(server.url, "low-voltage")
    channel.poll()
    played = PlayedFlow(channel)
    assert invoke("low-voltage", "slots", "12", "--redis", server.url).exit_code == 0
    assert invoke(write_flow(tmp_path), "slots", "13", "--redis", server.url).exit_code == 0
    assert invoke(write_flow(tmp_path, f"{{control: '{server.url}'}}"), "slots", "14").exit_code == 0
    assert [command.arguments["count"] for command in played.heard] == [12, 13, 14]
    outcome = invoke("high-voltage", "show", "--redis", server.url)
    assert outcome.exit_code == 1 and "there are low-voltage" in plain(outcome.stderr)
    played.end()
    server.close()
