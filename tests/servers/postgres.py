"""A PostgreSQL server of the tests' own."""

from __future__ import annotations

import signal
from typing import Any, ClassVar

from benchmarks.servers.processes import find_program
from servers.programs import UnprivilegedServer

FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
USER, PASSWORD, DATABASE = "anabranch", "a-secret-of-the-tests", "results"


class PostgresServer(UnprivilegedServer):
    """A server with one database and a user who needs a password."""

    # Clients are thrown out at once: SIGTERM would wait for them.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    @property
    def url(self) -> str:
        """How clients reach it, the password included."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        binary = find_program(["postgres"], FOLDERS, "postgresql")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "shared_buffers": "32MB",
            "max_connections": 40,
            "max_wal_size": "128MB",
            # A crash of the server alone loses nothing: the machine's memory has what the disk has not.
            "fsync": "off",
            # In its folder, which goes with it: a server that is killed would leave its shared memory behind.
            "dynamic_shared_memory_type": "mmap",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [binary, "-D", str(self.folder / "data"), *options]

    def prepare(self) -> None:
        """Make a database cluster."""
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self.run(
            find_program(["initdb"], FOLDERS, "postgresql"),
            *("--pgdata", str(self.folder / "data"), "--username", USER, "--pwfile", str(secret)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"),
        )

    def settle(self) -> None:
        """Make the database."""
        self.execute(f"CREATE DATABASE {DATABASE}", database="postgres")

    def execute(self, sql: str, *values: Any, database: str = DATABASE) -> list[tuple[Any, ...]]:
        """Run a statement as the user of the tests, and return its rows."""
        with self._connect(database) as connection:
            done = connection.execute(sql, values or None)
            return list(done.fetchall()) if done.description else []

    def answers(self) -> bool:
        """Say whether the server takes requests."""
        import psycopg

        try:
            self._connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self, database: str) -> Any:
        import psycopg

        return psycopg.connect(self.url, dbname=database, connect_timeout=5, autocommit=True)
