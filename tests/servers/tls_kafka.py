"""A Kafka broker of the tests' own that speaks TLS, too."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.servers.secured_kafka import SHORT_LOGIN_SECONDS, SecuredKafkaServer
from servers.kafka import SASL_PASSWORD, SASL_USER, KafkaBroker

__all__ = ["SHORT_LOGIN_SECONDS", "TlsKafkaBroker"]


@dataclass
class TlsKafkaBroker(KafkaBroker, SecuredKafkaServer):
    """A broker with a listener for SSL, which asks clients for a certificate, and one for SASL_SSL."""

    def let_in_by_scram(self) -> None:
        """Make ``SASL_USER`` known with ``SASL_PASSWORD`` to both kinds of SCRAM."""
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        # Kept while it answers: a client that is gone never does.
        admin = self.admin()
        # One after the other: a broker takes one change of a user at a time.
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            secret = ScramCredentialInfo(kind, 4096)
            entry = UserScramCredentialUpsertion(SASL_USER, secret, SASL_PASSWORD.encode())
            admin.alter_user_scram_credentials([entry])[SASL_USER].result(90)
