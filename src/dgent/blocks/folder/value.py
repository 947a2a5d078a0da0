"""Single values that a file sets: if somebody else has set another one since, the file's value wins.

Texts, lists and counters merge. A single value cannot: so it is written again after the merge, and the other
one is reported, and still in the block's history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from dgent.blocks.document.document import Document
from dgent.blocks.folder.format import is_same

GONE = object()


@dataclass(frozen=True)
class FileValue(ABC):
    """A value that a file sets at one place; None removes it. `where` names the place for people."""

    where: str
    before: Any
    wanted: Any

    @abstractmethod
    def now(self, document: Document) -> Any:
        """Return the current value; GONE when the place does not exist any more."""

    @abstractmethod
    def write(self, document: Document) -> None:
        """Set the wanted value."""

    def find_conflict(self, document: Document) -> str | None:
        """Describe what somebody else has set at the same place since; None if there is no conflict."""
        now = self.now(document)
        if now is GONE:
            return f"{self.where} was deleted in the database, and changed to {self.wanted!r:.60} in the file"
        if is_same(now, self.before) or is_same(now, self.wanted):
            return None
        return _describe_conflict(self.where, now, self.wanted)

    def settle(self, document: Document) -> bool:
        """Make the file's value win; False when its place is gone."""
        now = self.now(document)
        if now is GONE:
            return False
        if not is_same(now, self.wanted):
            self.write(document)
        return True


@dataclass(frozen=True)
class FileField(FileValue):
    """A field of a map."""

    key: str
    container: str

    def now(self, document: Document) -> Any:
        """Return the current value of the field."""
        return document.fields(self.container).get(self.key)

    def write(self, document: Document) -> None:
        """Set or remove the field."""
        if self.wanted is None:
            document.delete_field(self.key, self.container)
        else:
            document.set_field(self.key, self.wanted, self.container)


@dataclass(frozen=True)
class FileItem(FileValue):
    """Fields of an item of a list, which may have moved; a deleted item is inserted again."""

    item: str
    whole: dict[str, Any]
    place: int
    container: str

    def now(self, document: Document) -> Any:
        """Return the current values of the fields."""
        found = document.item_fields(self.item)
        return GONE if found is None else {key: found.get(key) for key in self.wanted}

    def find_conflict(self, document: Document) -> str | None:
        """Describe what somebody else has set in the same fields since; None if there is no conflict."""
        now = self.now(document)
        if now is GONE:
            return f"{self.where} was deleted in the database; it is there again, as the file has it"
        conflicts = [
            _describe_conflict(f"{key} of {self.where}", each, self.wanted[key])
            for key, each in now.items()
            if not is_same(each, self.before[key]) and not is_same(each, self.wanted[key])
        ]
        return "; ".join(conflicts) or None

    def settle(self, document: Document) -> bool:
        """Make the file's values win; a deleted item is inserted again."""
        if self.now(document) is GONE:
            place = min(self.place, document.count_items(self.container))
            document.insert_map(place, self.whole, self.container)
            return True
        return super().settle(document)

    def write(self, document: Document) -> None:
        """Set the fields."""
        document.set_fields_of(self.item, self.wanted)


@dataclass(frozen=True)
class FileNode(FileValue):
    """A field of a node of a tree."""

    key: str
    node: str
    container: str

    def now(self, document: Document) -> Any:
        """Return the current value of the field."""
        if not document.has_node(self.node, self.container):
            return GONE
        return document.node_data(self.node, self.container).get(self.key)

    def write(self, document: Document) -> None:
        """Set or remove the field."""
        document.set_node(self.node, {self.key: self.wanted}, self.container)


def _describe_conflict(where: str, now: Any, wanted: Any) -> str:
    return f"{where} became {now!r:.60} in the database; the file's {wanted!r:.60} counts"
