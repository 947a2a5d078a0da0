"""Sections: the parts of a composite, each edited like a block of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.blocks.document import shape as shapes
from dgent.blocks.document import validate
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import contents, rendered
from dgent.blocks.edit.editable import Change
from dgent.blocks.edit.structured import FieldEdits, ItemEdits, NodeEdits
from dgent.blocks.edit.text import TextEdits
from dgent.blocks.history.version import Version

if TYPE_CHECKING:
    from dgent.blocks.block import Block


class Edits(TextEdits, FieldEdits, ItemEdits, NodeEdits):
    """Everything that can be done to a document, whatever its kind; the wrong one is refused."""

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
        raise self._wrong("append")


class Section(Edits):
    """A part of a composite block. Its edits are versions of the block."""

    def __init__(self, block: Block, section: shapes.Section) -> None:
        self._block, self._section = block, section
        self._part = section.name

    @property
    def _shape(self) -> shapes.Shape:
        return self._section.shape

    @property
    def name(self) -> str:
        """What it is called in the block."""
        return self._section.name

    @property
    def description(self) -> str:
        """What belongs into it."""
        return self._section.description

    @property
    def read_only(self) -> bool:
        """Whether it stays as the block was made with."""
        return self._section.read_only

    @property
    def limit(self) -> int:
        """How many characters the whole block may have."""
        return self._block.limit

    async def text(self) -> str:
        """Its content as text, as it is now."""
        return rendered(self._shape, await self._block._document(), self.limit, self.name)

    async def value(self) -> dict[str, Any]:
        """Its content as plain values, as it is now."""
        return contents(self._shape, await self._block._document(), self.name)

    async def _edit(
        self, op: str, operation: str, change: Change, by: str | None, message: str, expect: int | None
    ) -> Version:
        if self.read_only:
            raise validate.read_only(f"the section {self.name}")
        return await self._block._edit(op, operation, change, by, message or f"in {self.name}", expect)

    def _held(self) -> Document:
        return self._block._held()

    def _stamped(self, entry: dict[str, Any], by: str | None) -> dict[str, Any]:
        return self._block._stamped(entry, by)

    def _title(self) -> str:
        return f"the section {self.name} of {self._block._title()}"
