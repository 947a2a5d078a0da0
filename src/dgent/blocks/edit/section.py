"""Sections: the parts of a composite, each edited like a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.blocks.document import validate
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import contents, render_document
from dgent.blocks.document.shape import SectionShape, Shape
from dgent.blocks.edit.editable import Change
from dgent.blocks.edit.structured import FieldEdits, ItemEdits, NodeEdits
from dgent.blocks.edit.text import TextEdits
from dgent.blocks.history.version import Version

if TYPE_CHECKING:
    from dgent.blocks.block import Block


class Edits(TextEdits, FieldEdits, ItemEdits, NodeEdits):
    """The edits of every kind of document; those of another kind raise WrongKind."""

    async def append(
        self, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add to its end: text to a text, an item to a list, an entry to a log."""
        if self.document_kind == "text":
            return await self._append_text(value, by, message, expect)
        if self.document_kind == "list":
            return await self.insert_item(value, by=by, message=message, expect=expect)
        if self.document_kind == "log":
            return await self.log(value, by=by, message=message)
        raise self._wrong_kind("append")


class Section(Edits):
    """A part of a composite block. Its edits are versions of the block."""

    def __init__(self, block: Block, section: SectionShape) -> None:
        self._block, self._section = block, section
        self._part = section.name

    @property
    def _shape(self) -> Shape:
        return self._section.shape

    @property
    def name(self) -> str:
        """Its name in the block."""
        return self._section.name

    @property
    def description(self) -> str:
        """The purpose of the section, for the agent."""
        return self._section.description

    @property
    def read_only(self) -> bool:
        """True when it keeps the content that the block was created with."""
        return self._section.read_only

    @property
    def limit(self) -> int:
        """The most characters the whole block may have."""
        return self._block.limit

    async def text(self) -> str:
        """Return its current content as text."""
        return render_document(self._shape, await self._block._document(), self.limit, self.name)

    async def value(self) -> dict[str, Any]:
        """Return its current content as plain values."""
        return contents(self._shape, await self._block._document(), self.name)

    async def _edit(
        self, op: str, operation: str, change: Change, by: str | None, message: str, expect: int | None
    ) -> Version:
        if self.read_only:
            raise validate.read_only_error(f"the section {self.name}")
        return await self._block._edit(op, operation, change, by, message or f"in {self.name}", expect)

    def _get_document(self) -> Document:
        return self._block._get_document()

    def _stamp(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        return self._block._stamp(entry, by)

    def _title(self) -> str:
        return f"the section {self.name} of {self._block._title()}"
