"""What librdkafka says of a client that brokers do not let in, and what is no refusal."""

from __future__ import annotations

import pytest

from anabranch.connectors.kafka_topics.connection import explain_refusal

BROKER = "sasl_ssl://127.0.0.1:9093/bootstrap"


@pytest.mark.parametrize(
    ("name", "text", "option"),
    [
        (
            "_SSL",
            "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could "
            "not be verified, verify that ssl.ca.location is correctly configured (after 4ms in state SSL_HANDSHAKE)",
            "ssl.ca.location",
        ),
        (
            "_TRANSPORT",
            "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42",
            "ssl.certificate.location",
        ),
        (
            "_TRANSPORT",
            "Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116",
            "ssl.certificate.location",
        ),
        (
            "_SSL",
            "error:0A000418:SSL routines::tlsv1 alert unknown ca: SSL alert number 48",
            "ssl.certificate.location",
        ),
        (
            "_AUTHENTICATION",
            "SASL authentication error: Authentication failed: Invalid username or password (after 348ms)",
            "sasl.*",
        ),
    ],
)
def test_a_refusal_names_the_option_to_correct(name: str, text: str, option: str) -> None:
    said = explain_refusal(name, f"{BROKER}: {text}")
    assert said is not None and option in said
    assert BROKER not in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_TRANSPORT", "Connect to ipv4#127.0.0.1:9093 failed: Connection refused (after 0ms in state CONNECT)"),
        ("_TRANSPORT", "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT"),
        ("_SSL", "SSL handshake failed: Disconnected: connection closing during SSL handshake"),
        (
            "_AUTHENTICATION",
            "SASL authentication error: Local: Broker transport failure (after 12ms in state AUTH_REQ)",
        ),
        ("_RESOLVE", "Failed to resolve 'kafka-1:9093': Name or service not known"),
        ("_TIMED_OUT", "Timed out ApiVersionRequest in flight (after 10000ms, timeout #0)"),
    ],
)
def test_what_a_broker_that_restarts_says_is_no_refusal(name: str, text: str) -> None:
    assert explain_refusal(name, f"{BROKER}: {text}") is None
