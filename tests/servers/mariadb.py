"""A MariaDB server of the tests' own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.servers.processes import find_program
from servers.programs import UnprivilegedServer

FOLDERS = ("/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/mariadb/bin")
USER, PASSWORD, DATABASE = "anabranch", "a-secret-of-the-tests", "results"


class MariadbServer(UnprivilegedServer):
    """A server with one database and a user who needs a password."""

    @property
    def url(self) -> str:
        """How clients reach it, the password included."""
        return f"mariadb://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        binary = find_program(["mariadbd", "mysqld"], FOLDERS, "mariadb-server")
        return [
            binary,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            # Two that start at once must not meet in the common one.
            f"--tmpdir={self.folder}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=2",
            "--skip-name-resolve",
            f"--init-file={self.folder / 'first.sql'}",
        ]

    def prepare(self) -> None:
        """Make a data folder, and say which user and database the server makes at its start."""
        self.run(
            find_program(["mariadb-install-db", "mysql_install_db"], FOLDERS, "mariadb-server"),
            *("--no-defaults", f"--datadir={self.folder / 'data'}", "--auth-root-authentication-method=normal"),
            *("--skip-test-db", "--skip-name-resolve", f"--tmpdir={self.folder}"),
        )
        Path(self.folder / "first.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        os.chmod(self.folder / "first.sql", 0o644)

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the user of the tests, and return its rows."""
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, values or None)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def answers(self) -> bool:
        """Say whether the server takes requests."""
        import pymysql

        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _connect(self) -> Any:
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=DATABASE,
            charset="utf8mb4",
            connect_timeout=5,
            autocommit=True,
        )
