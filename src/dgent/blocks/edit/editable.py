"""The base of everything that can be edited: a block, or a section of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Shape, container
from dgent.blocks.document.value import check_unicode
from dgent.blocks.history.version import Version
from dgent.errors import InputError

Change = Callable[[Document], None]


class Editable(ABC):
    """A document with a shape, in which each edit is one version."""

    _part = ""  # the name of its section; empty for a whole block

    @property
    @abstractmethod
    def _shape(self) -> Shape:
        """The shape of its document."""

    @property
    def document_kind(self) -> str:
        """The kind of its document: text, map, list, log, tree, counter or composite."""
        return self._shape.document

    @abstractmethod
    async def _edit(
        self, op: str, operation: str, change: Change, by: str | None, message: str, expect: int | None
    ) -> Version:
        """Make a change as the next version."""

    @abstractmethod
    def _get_document(self) -> Document:
        """Return the document as of the last edit or read."""

    @abstractmethod
    def _stamp(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        """Return an entry with the time and the agent added."""

    @abstractmethod
    def _title(self) -> str:
        """Return its name for error messages."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """The most characters it may have."""

    def _body(self) -> str:
        """Return the name of its main container."""
        return container(self._part, BODY[self.document_kind])

    def _require_kind(self, kind: str, operation: str) -> None:
        if self.document_kind != kind:
            raise self._wrong_kind(operation)

    def _wrong_kind(self, operation: str) -> errors.WrongKind:
        return errors.WrongKind(
            f"{self._title()} is a {self.document_kind}, which does not have {operation}",
            hint="edit one of its sections" if self.document_kind == "composite" else "",
        )


def check_text(value: object) -> str:
    """Return a text that can be stored, or raise InputError."""
    if not isinstance(value, str):
        raise InputError(f"expected text, got a {type(value).__name__}")
    return check_unicode(value)


def check_index(place: object, count: int) -> int:
    """Return a place among `count` items, counted from the end below 0; raises NoMatch."""
    if type(place) is not int or not -count <= place < count:
        raise errors.NoMatch(f"{place!r} is not a valid place among {count}")
    return place % count
