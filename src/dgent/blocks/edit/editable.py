"""What can be edited: a block, or a section of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Shape, container
from dgent.blocks.history.version import Version
from dgent.errors import InputError

Change = Callable[[Document], None]


class Editable(ABC):
    """A document with a shape, in which each edit is one version."""

    _part = ""  # the section it is; a block is the whole

    @property
    @abstractmethod
    def _shape(self) -> Shape:
        """What its document may hold."""

    @property
    def document_kind(self) -> str:
        """text, map, list, log, tree, counter or composite."""
        return self._shape.document

    @abstractmethod
    async def _edit(
        self, op: str, operation: str, change: Change, by: str | None, message: str, expect: int | None
    ) -> Version:
        """Make a change as the next version."""

    @abstractmethod
    def _held(self) -> Document:
        """The document as it was after the last edit or reading."""

    @abstractmethod
    def _stamped(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        """An entry with the time and the agent."""

    @abstractmethod
    def _title(self) -> str:
        """What to call it in an error."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """How many characters it may have."""

    def _body(self) -> str:
        """The name of the container it mainly is."""
        return container(self._part, BODY[self.document_kind])

    def _needs(self, kind: str, operation: str) -> None:
        if self.document_kind != kind:
            raise self._wrong(operation)

    def _wrong(self, operation: str) -> errors.WrongKind:
        return errors.WrongKind(
            f"{operation} is not for a {self.document_kind}, which {self._title()} is",
            hint="edit one of its sections" if self.document_kind == "composite" else "",
        )


def check_text(value: object) -> str:
    """A text that can be kept, or what is wrong with it."""
    if not isinstance(value, str):
        raise InputError(f"text is needed, not a {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not valid Unicode") from None
    return value


def check_index(place: object, count: int) -> int:
    """A place among so many, from the start or, below 0, from the end."""
    if type(place) is not int or not -count <= place < count:
        raise errors.NoMatch(f"there is no place {place!r} among {count}")
    return place % count
