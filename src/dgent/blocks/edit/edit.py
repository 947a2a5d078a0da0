"""An edit of a block, and the part of its document that it changes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from dgent.blocks import errors
from dgent.blocks.document.combine import merge_sequence
from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Shape, container

Change = Callable[[Document], None]


class Edit(msgspec.Struct, frozen=True):
    """A change of a document, and what the version that it becomes says about it.

    `op` is its name in the history; `operation` names the permission it needs: append, overwrite or
    delete. With `expect` it is refused on any other version. `node` is the version that it goes back to,
    `sequence` the text or list field that it writes, other than at the end.
    """

    op: str
    operation: str
    change: Change
    by: str | None = None
    message: str = ""
    expect: int | None = None
    node: int | None = None
    sequence: str = ""

    def sign(self, by: str | None, message: str, expect: int | None = None) -> Edit:
        """Return the edit with its author, its message and the version that it expects."""
        return replace(self, by=by, message=message, expect=expect)

    def repeat(self, edited: Document, current: Document) -> None:
        """Make the edit of a document in a later state of it, which lost the history that the edit builds on.

        It keeps what was stored in between: letters and items are known by the operations that brought them.
        """
        if self.sequence:
            merge_sequence(current, edited, self.sequence)
        else:
            self.change(current)


class Part(msgspec.Struct, frozen=True):
    """The part of a block's document that an edit changes: all of it, or a section."""

    shape: Shape
    limit: int
    label: str
    section: str = ""

    @property
    def title(self) -> str:
        """Its name for messages."""
        return f"the section {self.section} of {self.label!r}" if self.section else repr(self.label)

    @property
    def body(self) -> str:
        """The name of its main container."""
        return container(self.section, BODY[self.shape.document])

    def require_kind(self, kind: str, operation: str) -> None:
        """Raise WrongKind unless its document is of a kind."""
        if self.shape.document != kind:
            raise self.wrong_kind(operation)

    def wrong_kind(self, operation: str) -> errors.WrongKind:
        """Build the error for an operation that its kind of document does not have."""
        kind = self.shape.document
        return errors.WrongKind(
            f"{self.title} is a {kind}, which does not have {operation}",
            hint="edit one of its sections" if kind == "composite" else "",
        )
