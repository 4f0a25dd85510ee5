"""Certificates for servers on loopback, made by ``openssl``."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.processes import ServerError, find_program

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class SignedKey:
    """A private key and the certificate for it, each as a PEM file, and both as one."""

    key: Path
    certificate: Path
    both: Path


class Authority:
    """Signs certificates for 127.0.0.1 that are good for two days; raises ``ServerMissing`` without ``openssl``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = folder / "authority.key"
        self.certificate = folder / "authority.pem"
        """What clients must trust."""
        made = ("-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={folder.name}", *made)

    def sign(self, name: str) -> SignedKey:
        """Make a key with a certificate."""
        key, certificate, both = (self._folder / f"{name}{ending}" for ending in (".key", ".pem", "-both.pem"))
        request = self._folder / f"{name}.csr"
        address = ("-addext", "subjectAltName=IP:127.0.0.1")
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", *address, "-keyout", str(key), "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        _openssl(
            *("x509", "-req", "-in", str(request), *signer, "-copy_extensions", "copy", "-days", "2"),
            *("-out", str(certificate)),
        )
        both.write_text(key.read_text() + certificate.read_text())
        return SignedKey(key, certificate, both)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        [find_program(["openssl"], [], "openssl"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        msg = f"openssl {arguments[0]} failed:\n{done.stderr}"
        raise ServerError(msg)
