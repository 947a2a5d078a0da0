"""The edits that a block and its sections offer; each is one version of the block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dgent.blocks.document import validate
from dgent.blocks.document.entries import count_expired
from dgent.blocks.document.render import contents, render_document
from dgent.blocks.document.shape import SectionShape, Shape
from dgent.blocks.edit import structured
from dgent.blocks.edit import text as texts
from dgent.blocks.edit.edit import Edit, Part
from dgent.blocks.history.version import Version, View

if TYPE_CHECKING:
    from dgent.blocks.block import Block


class Editable(ABC):
    """A block or a section of one. Edits of another kind of document than its own raise WrongKind."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The shape of its document: the fields, items, entries or sections it may hold."""

    @property
    def document_kind(self) -> str:
        """The kind of its document: text, map, list, log, tree, counter or composite."""
        return self.shape.document

    @property
    @abstractmethod
    def _block(self) -> Block:
        """The block that its edits are versions of."""

    @abstractmethod
    def _part(self) -> Part:
        """Return the part of the block's document that it edits."""

    @abstractmethod
    async def _edit(self, edit: Edit) -> Version:
        """Make an edit as the next version."""

    async def append(
        self, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add to its end: text to a text, an item to a list, an entry to a log."""
        kind, part = self.document_kind, self._part()
        if kind == "text":
            return await self._edit(texts.append(part, value).sign(by, message, expect))
        if kind == "list":
            return await self._edit(structured.insert_item(part, value).sign(by, message, expect))
        if kind == "log":
            return await self.log(value, by=by, message=message)
        raise part.wrong_kind("append")

    # -- texts --------------------------------------------------------------------------------

    async def write(
        self, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace all of a text; parts that stay the same are not rewritten."""
        return await self._edit(texts.write(self._part(), text).sign(by, message, expect))

    async def replace(
        self,
        old: str,
        new: str,
        *,
        which: str | int = "first",
        regex: bool = False,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Replace the first match of a text, all (`which="all"`), the nth, or the only one (`which="only"`).

        `old` may be a regex. With `"only"` it raises NoMatch when there are several, and names their lines.
        """
        edit = texts.replace(self._part(), old, new, which, regex)
        return await self._edit(edit.sign(by, message, expect))

    async def edit_range(
        self,
        start: int,
        end: int,
        text: str,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Replace the lines from `start` to `end`, both counted from 1."""
        edit = texts.edit_range(self._part(), start, end, text)
        return await self._edit(edit.sign(by, message, expect))

    async def insert(
        self, line: int, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Insert lines behind a line, counted from 1; behind 0 is the top."""
        return await self._edit(texts.insert(self._part(), line, text).sign(by, message, expect))

    async def edit_many(
        self,
        edits: Sequence[Mapping[str, Any]],
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Make several edits of a text as one version: all of them or none, each after those before it.

        An edit is a map: `old` and `new` replace the only match, with `"all": True` every match; `line` and
        `text` insert behind a line; `start`, `end` and `text` replace lines.
        """
        return await self._edit(texts.edit_many(self._part(), edits).sign(by, message, expect))

    async def patch(
        self, patch: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Apply a unified diff; every line of its context must be there."""
        return await self._edit(texts.patch(self._part(), patch).sign(by, message, expect))

    # -- maps and counters --------------------------------------------------------------------

    async def set_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Set a field of a map; in a list field only the items that differ are changed."""
        edit = structured.set_field(self._part(), name, value)
        return await self._edit(edit.sign(by, message, expect))

    async def clear_field(
        self, name: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Reset a field to its default, or empty it when it has none."""
        return await self._edit(structured.clear_field(self._part(), name).sign(by, message, expect))

    async def append_to_field(
        self, name: str, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Add an item to the end of a list field."""
        edit = structured.append_to_field(self._part(), name, value)
        return await self._edit(edit.sign(by, message, expect))

    async def remove_from_field(
        self, name: str, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove the item at a place of a list field."""
        edit = structured.remove_from_field(self._part(), name, place)
        return await self._edit(edit.sign(by, message, expect))

    async def increment(
        self,
        name: str | int | None = None,
        amount: int = 1,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Add to a counter or a counter field; concurrent increments add up.

        A number alone is the amount: `increment(10)`. Counting up is an append; counting down removes
        something and is an overwrite.
        """
        field, wanted = (None, name) if isinstance(name, int) else (name, amount)
        edit = structured.increment(self._part(), field, wanted)
        return await self._edit(edit.sign(by, message, expect))

    # -- lists and logs -----------------------------------------------------------------------

    async def insert_item(
        self,
        value: Any,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Insert an item into a list, at the end when `place` is not given."""
        edit = structured.insert_item(self._part(), value, place)
        return await self._edit(edit.sign(by, message, expect))

    async def set_item(
        self, place: int, value: Any, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace an item; of an item with fields only the given fields, and None removes one."""
        edit = structured.set_item(self._part(), place, value)
        return await self._edit(edit.sign(by, message, expect))

    async def move_item(
        self, place: int, to: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Move an item of a list to another place."""
        return await self._edit(structured.move_item(self._part(), place, to).sign(by, message, expect))

    async def delete_item(
        self, place: int, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Remove an item of a list."""
        return await self._edit(structured.delete_item(self._part(), place).sign(by, message, expect))

    async def log(self, entry: Any, *, by: str | None = None, message: str = "") -> Version:
        """Add an entry to a log, stamped with the time and the agent."""
        return await self._log("log", entry, by, message)

    async def _log(self, op: str, entry: Any, by: str | None, message: str) -> Version:
        part = self._part()
        stamped = structured.build_entry(part, entry, by or self._block._permissions.agent)
        done = await self._edit(structured.append_entry(part, stamped, op).sign(by, message))
        await self._trim(by)
        return done

    async def _trim(self, by: str | None) -> None:
        """Remove the entries that are expired by the rule of the log."""
        part = self._part()
        if count_expired(part.shape, self._block._version_log.document, part.body):
            await self._edit(replace(structured.trim(part), by=by))

    # -- trees --------------------------------------------------------------------------------

    async def add_node(
        self,
        data: Mapping[str, Any],
        parent: str | None = None,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> str:
        """Add a node below another one or at the top, last when `place` is not given; returns its id."""
        made: list[str] = []
        edit = structured.add_node(self._part(), data, parent, place, made)
        await self._edit(edit.sign(by, message, expect))
        return made[-1]

    async def set_node(
        self,
        id: str,
        data: Mapping[str, Any],
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Change the given fields of a node; None removes one."""
        return await self._edit(structured.set_node(self._part(), id, data).sign(by, message, expect))

    async def move_node(
        self,
        id: str,
        parent: str | None = None,
        place: int | None = None,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Move a node below another one or to the top, with everything below it."""
        edit = structured.move_node(self._part(), id, parent, place)
        return await self._edit(edit.sign(by, message, expect))

    async def delete_node(
        self, id: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Delete a node with everything below it."""
        return await self._edit(structured.delete_node(self._part(), id).sign(by, message, expect))


class Section(Editable):
    """A part of a composite block. Its edits are versions of the block."""

    def __init__(self, block: Block, section: SectionShape) -> None:
        self._whole, self._section = block, section

    @property
    def shape(self) -> Shape:
        """The shape of its document: the fields, items or entries it may hold."""
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
        return self._whole.limit

    async def text(self) -> str:
        """Return its current content as text."""
        return render_document(self.shape, await self._whole._document(), self.limit, self.name)

    async def value(self) -> dict[str, Any]:
        """Return its current content as plain values."""
        return contents(self.shape, await self._whole._document(), self.name)

    async def current(self) -> View:
        """Return its current content, with the version of the block: all of one moment."""
        document = await self._whole._document()
        text = render_document(self.shape, document, self.limit, self.name)
        value = contents(self.shape, document, self.name)
        return View(self._whole.label, self._whole.version, text, value)

    @property
    def _block(self) -> Block:
        return self._whole

    def _part(self) -> Part:
        return Part(self.shape, self.limit, self._whole.label, self.name)

    async def _edit(self, edit: Edit) -> Version:
        if self.read_only:
            raise validate.read_only_error(f"the section {self.name}")
        return await self._whole._edit(replace(edit, message=edit.message or f"in {self.name}"))
