"""Names of tables and columns as a SQL database wants them quoted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quoting:
    """A database's quotation mark, which is doubled inside a name."""

    mark: str

    def name(self, name: str) -> str:
        """Return one name in quotes."""
        doubled = name.replace(self.mark, 2 * self.mark)
        return f"{self.mark}{doubled}{self.mark}"

    def path(self, table: str) -> str:
        """Return the name of a table, in front of it that of its schema if it is given, each in quotes."""
        return ".".join(self.name(part) for part in table.split("."))

    def names(self, columns: Iterable[str]) -> str:
        """Return names in quotes, divided by commas."""
        return ", ".join(self.name(column) for column in columns)


DOUBLE_QUOTES = Quoting('"')
"""Standard SQL: PostgreSQL, SQLite."""
BACKTICKS = Quoting("`")
"""MariaDB and MySQL."""
