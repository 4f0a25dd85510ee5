"""Commands through a real Redis server: what happens when it is not there, goes away and comes back."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from anabranch.connectors.control_channels.redis_messages import RedisChannel, send, show_address
from anabranch.control.commands import Command, Reply
from anabranch.errors import ControlError
from servers.redis import RedisServer

WAIT_SECONDS = 120.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def answer_in_background(channel: RedisChannel, ended: threading.Event) -> threading.Thread:
    """Let a flow answer every command with its own id."""

    def answer() -> None:
        while not ended.wait(0.02):
            for command in channel.poll():
                channel.reply(Reply(command.id, True, f"answer to {command.id}"))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def test_a_server_that_goes_away_is_warned_of_once_and_heard_again_when_it_is_back(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    channel = RedisChannel(server.url, "flow")
    with caplog.at_level(logging.WARNING, "anabranch"):
        thread = answer_in_background(channel, ended)
        wait_for(lambda: _ask(server, "1"), "the first answer")
        server.stop()
        wait_for(lambda: "out of reach" in caplog.text, "the warning")
        # Long enough for several tries.
        time.sleep(2.0)
        server.start()
        wait_for(lambda: _ask(server, "2"), "an answer after the outage")
    ended.set()
    thread.join()
    channel.close()
    first, second = [record.message for record in caplog.records if record.name == "anabranch"]
    assert "the flow goes on" in first and f"127.0.0.1:{server.port}" in first
    assert "heard again" in second


def _ask(server: RedisServer, id: str) -> bool:
    try:
        return send(server.url, "flow", Command(id, "show"), 5.0).text == f"answer to {id}"
    except ControlError:
        return False


def test_a_server_that_is_not_there_at_the_start_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer()
    channel = RedisChannel(server.url, "flow")
    with caplog.at_level(logging.WARNING, "anabranch"):
        assert [channel.poll() for _ in range(3)] == [[], [], []]
        channel.reply(Reply("a", True, "nobody hears this"))
    assert len(caplog.records) == 1
    server.start()
    ended = threading.Event()
    thread = answer_in_background(channel, ended)
    wait_for(lambda: _ask(server, "1"), "an answer")
    ended.set()
    thread.join()
    server.close()


def test_pauses_between_tries_grow_to_half_a_minute() -> None:
    seconds = [0.0]
    channel = RedisChannel(RedisServer().url, "flow", lambda: seconds[0])
    pauses = []
    for _ in range(9):
        channel.poll()
        pauses.append(channel._next_try - seconds[0])
        seconds[0] = channel._next_try
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_message_that_is_no_command_is_refused_and_the_next_is_heard(server: RedisServer) -> None:
    channel = RedisChannel(server.url, "flow")
    channel.poll()
    with redis.Redis.from_url(server.url) as client:
        replies = client.pubsub()  # type: ignore[no-untyped-call]
        replies.subscribe("anabranch:flow:replies:a")
        replies.get_message(timeout=5)
        client.publish("anabranch:flow:commands", b"drop everything")
        client.publish("anabranch:flow:commands", json.dumps({"format": 1, "id": "a", "action": "drop"}))
        client.publish("anabranch:flow:commands", json.dumps({"format": 1, "id": "b", "action": "show"}))
        heard: list[str] = []
        wait_for(lambda: bool(heard.extend(c.id for c in channel.poll()) or heard), "the good command")
        assert heard == ["b"]
        message = replies.get_message(timeout=5)
        assert message is not None and "no action 'drop'" in json.loads(message["data"])["text"]
        replies.close()
    channel.close()


def test_a_flow_that_does_not_listen_is_an_error_at_once_that_names_those_that_do(server: RedisServer) -> None:
    with pytest.raises(ControlError, match=r"no flow 'flow' listens at .*, nor does any other"):
        send(server.url, "flow", Command("a", "show"), 60)
    channel = RedisChannel(server.url, "low:voltage")
    channel.poll()
    with pytest.raises(ControlError, match=r"no flow 'flow' listens at .*, there are low:voltage"):
        send(server.url, "flow", Command("a", "show"), 60)
    channel.close()


def test_two_flows_of_one_name_are_not_steered_by_it(server: RedisServer) -> None:
    channels = [RedisChannel(server.url, "flow") for _ in range(2)]
    for channel in channels:
        channel.poll()
    with pytest.raises(ControlError, match="2 flows listen as 'flow'"):
        send(server.url, "flow", Command("a", "show"), 60)
    for channel in channels:
        assert channel.poll() == []
        channel.close()


def test_a_server_out_of_reach_is_an_error_for_the_sender() -> None:
    with pytest.raises(ControlError, match="see that the server runs"):
        send(RedisServer().url, "flow", Command("a", "show"), 5)


def test_a_wrong_password_is_an_error_and_no_password_is_ever_shown(caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer(password="s3cret")
    server.start()
    wrong = server.url.replace("s3cret", "guessed")
    with pytest.raises(ControlError, match="cannot be used") as caught:
        send(wrong, "flow", Command("a", "show"), 5)
    channel = RedisChannel(wrong, "flow")
    with caplog.at_level(logging.WARNING, "anabranch"):
        channel.poll()
    good = RedisChannel(server.url, "flow")
    good.poll()
    with pytest.raises(ControlError, match="no answer") as unanswered:
        send(server.url, "flow", Command("a", "show"), 0.2)
    for text in (str(caught.value), str(unanswered.value), caplog.text):
        assert text and "guessed" not in text and "s3cret" not in text
    good.close()
    server.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("rediss://me:pass@word@host:1/2?client_name=x", "rediss://host:1/2"),
        ("unix:///run/redis.sock?password=x", "unix:///run/redis.sock"),
    ],
)
def test_urls_are_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert show_address(url) == shown


def test_a_url_that_names_no_server_is_an_error() -> None:
    for url in ("http://host", "redis://host:port"):
        with pytest.raises(ControlError, match="write redis://host:port/0"):
            send(url, "flow", Command("a", "show"), 1)
