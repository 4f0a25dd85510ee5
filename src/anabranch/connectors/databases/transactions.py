"""Work with a database in one transaction; where it fails, users hear what the database said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from anabranch.connectors.retry import ServerAway
from anabranch.errors import SinkError


class Connection(Protocol):
    """An open connection; what is done since the last ``commit`` is one transaction."""

    def commit(self) -> None:
        """Make it last; raise what ``is_away`` knows if another writer came between."""
        ...

    def close(self) -> None:
        """Close it; what was not committed is undone."""
        ...

    def explain(self, error: BaseException) -> str | None:
        """Return what the database said, without secrets; None if the error is none of its own."""
        ...

    def is_away(self, error: BaseException) -> bool:
        """Say whether the same may work later."""
        ...

    def advise(self, error: BaseException, table: str) -> str:
        """Say what a user can do about an error."""
        ...


C = TypeVar("C", bound=Connection)
T = TypeVar("T")


@dataclass(slots=True)
class HeldConnection(Generic[C]):
    """The one connection that a sink holds on the driver, opened when it is needed."""

    connection: C | None = None

    def run(self, connect: Callable[[], C], act: Callable[[C], T], place: str, table: str) -> T:
        """Act and commit; if anything goes wrong, close the connection, so that the next try begins anew."""
        if self.connection is None:
            self.connection = connect()
        connection = self.connection

        def say(error: BaseException, reason: str) -> str:
            return f"{place} refuses it: {reason}; {connection.advise(error, table)}"

        with explained(connection, say):
            try:
                result = act(connection)
                connection.commit()
            except BaseException:
                self.close()
                raise
            return result

    def close(self) -> None:
        """Give the connection back."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@contextmanager
def explained(connection: Connection, say: Callable[[BaseException, str], str]) -> Iterator[None]:
    """Raise an error of the database's own as ``ServerAway``, or as ``SinkError`` with what ``say`` makes of it."""
    try:
        yield
    except BaseException as error:
        reason = connection.explain(error)
        if reason is None:
            raise
        if connection.is_away(error):
            raise ServerAway(reason) from None
        raise SinkError(say(error, reason)) from None
