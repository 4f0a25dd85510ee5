"""A Kafka broker that also speaks TLS and wants clients to log in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from anabranch.lab.ports import LOOPBACK, find_free_ports
from benchmarks.servers.certificates import Authority
from benchmarks.servers.kafka import SASL_PASSWORD, SASL_USER, KafkaServer

_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},{secured}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},{secured}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,MUTUAL:SSL,LOGIN:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={keys}
ssl.truststore.type=PEM
ssl.truststore.location={trusted}
listener.name.mutual.ssl.client.auth=required
listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.login.scram-sha-256.sasl.jaas.config={scram}
listener.name.login.scram-sha-512.sasl.jaas.config={scram}
listener.name.login.scram-sha-512.connections.max.reauth.ms={short_login_ms}
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
"""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SHORT_LOGIN_SECONDS = 1.5
"""How long a login by SCRAM-SHA-512 holds; others hold for ever."""


@dataclass
class SecuredKafkaServer(KafkaServer):
    """A broker with a listener for SSL, which asks clients for a certificate, and one for SASL_SSL."""

    secured_ports: list[int] = field(default_factory=lambda: find_free_ports(2), kw_only=True)

    @property
    def mutual_servers(self) -> str:
        """``host:port`` for the protocol SSL; clients need a certificate of the authority."""
        return f"{LOOPBACK}:{self.secured_ports[0]}"

    @property
    def login_servers(self) -> str:
        """``host:port`` for the protocol SASL_SSL, with ``SASL_USER`` and ``SASL_PASSWORD``."""
        return f"{LOOPBACK}:{self.secured_ports[1]}"

    @property
    def trusted(self) -> Path:
        """The certificate of the authority that signed the broker's."""
        return self.folder / "certificates" / "authority.pem"

    def properties(self) -> str:
        """Return the broker's settings."""
        authority = Authority(self.folder / "certificates")
        authority.sign("client")
        return super().properties() + _LISTENERS.format(
            port=self.port,
            controller_port=self.ports[2],
            secured=f"MUTUAL://{self.mutual_servers},LOGIN://{self.login_servers}",
            keys=authority.sign("broker").both,
            trusted=self.trusted,
            user=SASL_USER,
            password=SASL_PASSWORD,
            scram=_SCRAM,
            short_login_ms=int(1_000 * SHORT_LOGIN_SECONDS),
        )

    def mutual_options(self) -> dict[str, str]:
        """Return options of a client that shows a certificate."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trusted),
            "ssl.certificate.location": str(self.folder / "certificates" / "client.pem"),
            "ssl.key.location": str(self.folder / "certificates" / "client.key"),
        }

    def login_options(self, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return options of a client that logs in."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted),
            "sasl.mechanism": mechanism,
            "sasl.username": SASL_USER,
            "sasl.password": SASL_PASSWORD,
        }

    def java_login_settings(self, shaded_in: str = "") -> dict[str, str]:
        """Return what ``login_options`` say, as clients in Java are told it, whose packages may be shaded."""
        module = f"{shaded_in}org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="{SASL_USER}" password="{SASL_PASSWORD}";',
        }
