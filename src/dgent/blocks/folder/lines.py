"""Lines of a log that were edited in a file: new ones are appended, the others are never changed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from dgent.blocks import checking, errors
from dgent.blocks.block import Block
from dgent.blocks.diff import sameness
from dgent.blocks.document import ENTRIES, Document
from dgent.blocks.entries import expired
from dgent.blocks.folder.ledger import Line
from dgent.blocks.form import STAMPS, entry_line


def added(before: Sequence[Any], wanted: Sequence[Any], taken: Sequence[Line]) -> list[Any]:
    """The entries that are new in a file; those that were taken in before it was written again are not."""
    left, right = [sameness(each) for each in before], [sameness(each) for each in wanted]
    done = [sameness(each.given) for each in taken]
    found = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag in ("delete", "replace"):
            raise errors.PermissionDenied("entries of a log are never changed or removed")
        if tag == "insert":
            found += [(right[place], wanted[place]) for place in range(start, end)]
    fresh = []
    for key, entry in found:
        if key in done:
            done.remove(key)
        else:
            fresh.append(entry)
    return fresh


def made(block: Block, given: Sequence[Any]) -> list[Line]:
    """New entries as a log keeps them: checked, and stamped with the time and the agent."""
    found = []
    for entry in given:
        fields = dict(entry) if isinstance(entry, Mapping) else {block._first_field(): entry}
        if not fields.keys().isdisjoint(STAMPS):
            raise errors.TemplateError("a new entry is stamped with at and agent, so it cannot have them")
        kept = block._stamped(checking.record(block.shape, fields), None)
        size = len(entry_line(kept, block.shape.clip))
        if size > block.limit:
            raise errors.LimitExceeded(f"an entry has {size} characters; the limit is {block.limit}")
        found.append(Line(entry, kept))
    return found


def those_in(document: Document, taken: Sequence[Line]) -> list[Line]:
    """Those of some entries that are in a log: the others were about to come there, and did not."""
    there = {sameness(each) for each in document.entries()}
    return [each for each in taken if sameness(each.kept) in there]


def append(document: Document, new: Sequence[Line]) -> None:
    """Put entries at the end of a log."""
    for each in new:
        document.append_entry(each.kept)


async def trim(block: Block, by: str | None) -> None:
    """Take out what is too old by the rule of the log."""
    if expired(block.shape, block._held(), ENTRIES):
        await block._trim(ENTRIES, by)
