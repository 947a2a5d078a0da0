"""Values that a file gives: when somebody else has given another one since, the file's counts.

Texts, lists and counters merge. A single value cannot: so it is written once more after the merge, and the
other one is told, and still in the block's history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from dgent.blocks.document.document import Document
from dgent.blocks.folder.format import same

GONE = object()


@dataclass(frozen=True)
class Held(ABC):
    """A value that one place is to have; None for none. `where` names the place for people."""

    where: str
    before: Any
    wanted: Any

    @abstractmethod
    def now(self, document: Document) -> Any:
        """What is there now; GONE when the place is not there any more."""

    @abstractmethod
    def write(self, document: Document) -> None:
        """Make it what is wanted."""

    def rival(self, document: Document) -> str | None:
        """What somebody else has done to the same place since, if that is something else."""
        now = self.now(document)
        if now is GONE:
            return f"{self.where} was deleted in the database, and changed to {self.wanted!r:.60} in the file"
        if same(now, self.before) or same(now, self.wanted):
            return None
        return _told(self.where, now, self.wanted)

    def settle(self, document: Document) -> bool:
        """See to it that the file's value counts; False when there is no place for it."""
        now = self.now(document)
        if now is GONE:
            return False
        if not same(now, self.wanted):
            self.write(document)
        return True


@dataclass(frozen=True)
class HeldField(Held):
    """A field of a map."""

    key: str
    container: str

    def now(self, document: Document) -> Any:
        """What the field has."""
        return document.fields(self.container).get(self.key)

    def write(self, document: Document) -> None:
        """Set it, or take it away."""
        if self.wanted is None:
            document.delete_field(self.key, self.container)
        else:
            document.set_field(self.key, self.wanted, self.container)


@dataclass(frozen=True)
class HeldItem(Held):
    """Fields of an item of a list, which may stand elsewhere by now; one that was deleted comes back."""

    item: str
    whole: dict[str, Any]
    place: int
    container: str

    def now(self, document: Document) -> Any:
        """What the fields have."""
        found = document.item_fields(self.item)
        return GONE if found is None else {key: found.get(key) for key in self.wanted}

    def rival(self, document: Document) -> str | None:
        """What somebody else has done to the same fields since, if that is something else."""
        now = self.now(document)
        if now is GONE:
            return f"{self.where} was deleted in the database; it is there again, as the file has it"
        told = [
            _told(f"{key} of {self.where}", each, self.wanted[key])
            for key, each in now.items()
            if not same(each, self.before[key]) and not same(each, self.wanted[key])
        ]
        return "; ".join(told) or None

    def settle(self, document: Document) -> bool:
        """See to it that the file's values count; without its item they get a new one."""
        if self.now(document) is GONE:
            place = min(self.place, document.count_items(self.container))
            document.insert_map(place, self.whole, self.container)
            return True
        return super().settle(document)

    def write(self, document: Document) -> None:
        """Set them."""
        document.set_fields_of(self.item, self.wanted)


@dataclass(frozen=True)
class HeldNode(Held):
    """A field of a node of a tree."""

    key: str
    node: str
    container: str

    def now(self, document: Document) -> Any:
        """What the field has."""
        if not document.has_node(self.node, self.container):
            return GONE
        return document.node_data(self.node, self.container).get(self.key)

    def write(self, document: Document) -> None:
        """Set it, or take it away."""
        document.set_node(self.node, {self.key: self.wanted}, self.container)


def _told(where: str, now: Any, wanted: Any) -> str:
    return f"{where} became {now!r:.60} in the database; the file's {wanted!r:.60} counts"
