"""The rooms of src/anabranch, as docs/architecture.md has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the document says: room → the rooms it may import, and the rooms that are pure.

    A folder inside a room may have a row, too: then it is a room of its own, and who may import the one around it may
    not import it for that.
    """

    may_import: dict[str, frozenset[str]]
    pure: frozenset[str]

    def find(self, parts: Sequence[str]) -> str | None:
        """Return the room of a path or a dotted name below the package; None if the table has none for it."""
        folders = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
        return next((folder for folder in folders if folder in self.may_import), None)


def read_rooms(text: str) -> Rooms:
    """Return the rules in the document's section "Rooms".

    The last column holds names divided by commas, or one of: –, all, all above, the pure rooms.
    """
    section = re.search(r"^## Rooms\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, "docs/architecture.md has no section '## Rooms'"
    rows = re.findall(r"^\| `([\w/]+)/` \|[^|\n]*\|([^|\n]*)\|$", section[1], re.MULTILINE)
    assert rows, "the section 'Rooms' has no rows of the form | `room/` | holds | may import |"
    sentence = re.search(r"^The pure rooms are ([^.]*)\.", section[1], re.MULTILINE)
    assert sentence, "the section 'Rooms' has no sentence 'The pure rooms are …'"

    names = [name for name, _ in rows]
    pure = frozenset(re.findall(r"`([\w/]+)`", sentence[1]))
    assert pure <= set(names), f"pure rooms without a row: {sorted(pure - set(names))}"
    may_import = {}
    for position, (name, cell) in enumerate(rows):
        match cell.strip():
            case "–":
                allowed = set()
            case "all":
                allowed = set(names)
            case "all above":
                allowed = set(names[:position])
            case "the pure rooms":
                allowed = set(pure)
            case listed:
                allowed = {word.strip() for word in listed.split(",")}
        assert allowed <= set(names), f"{name} may import rooms without a row: {sorted(allowed - set(names))}"
        may_import[name] = frozenset(allowed | {name})
    return Rooms(may_import, pure)
