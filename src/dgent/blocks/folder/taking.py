"""Edits of files, taken into the database: each file's as one version, merged with what others did since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from dgent.blocks import errors, gate
from dgent.blocks.block import Block
from dgent.blocks.document import Document
from dgent.blocks.editable import Change
from dgent.blocks.filling import first_content
from dgent.blocks.folder import content, lines
from dgent.blocks.folder.difference import Difference
from dgent.blocks.folder.disk import File
from dgent.blocks.folder.ledger import Base, Entry, Taking
from dgent.blocks.folder.making import BEGIN_EMPTY
from dgent.blocks.folder.round import Round
from dgent.blocks.form import STAMPS
from dgent.blocks.version import Version
from dgent.errors import Conflict, Corrupt, Denied, InputError, NotFound

RECENT = 32  # versions among which one is looked for that a file of unknown origin may be


@dataclass
class Edit:
    """An edited file that is about to be taken in: how, and what came of it."""

    id: str
    entry: Entry
    file: File
    operation: str
    change: Change
    rivals: list[str] = field(default_factory=list)
    lost: bool = False


async def plan(round: Round, id: str, entry: Entry, file: File) -> Edit | None:
    """What taking in a file needs; None when it is not edited, or cannot be taken in, which is told."""
    try:
        return await _planned(round, round.blocks[id], entry, file)
    except InputError as error:
        _refuse(round, id, entry, error.message)
    except Denied as error:
        await _deny(round, id, entry, file, error)
    except (NotFound, Corrupt) as error:
        await _without_base(round, id, entry, file, error.message)
    return None


async def _planned(round: Round, block: Block, entry: Entry, file: File) -> Edit | None:
    if file.problem:
        raise InputError(file.problem)
    wanted = content.decoded(file.suffix, file.content)
    await block._document()
    if entry.base.frontiers and entry.base.redactions != block._chain.redactions:
        raise errors.VersionNotFound("something was redacted since the file was written")
    if not entry.base.frontiers and not await _origin(round, block, entry, file, wanted):
        return None
    if file.digest == entry.base.digest and entry.taking is None:
        return None
    if block.document_kind == "log":
        return _edit_log(block, entry, file, wanted)
    return _edit(block, entry, file, await _copy(block, entry), wanted)


def _refuse(round: Round, id: str, entry: Entry, why: str) -> None:
    """What can be put right in the editor stays in the file."""
    round.tell("refused", entry, f"{why}; the file stays as it is", entry.base.version or None)
    round.held.add(id)
    entry.taking = None


async def _deny(round: Round, id: str, entry: Entry, file: File, error: Denied) -> None:
    """What may not be done is kept beside, and the file is written again."""
    aside = await round.set_aside(file)
    round.tell(
        "refused", entry, f"{error.message}; what the file said is in {aside}", round.blocks[id].version
    )
    round.reasons[id] = "its edit was refused"
    entry.taking = None


async def _without_base(round: Round, id: str, entry: Entry, file: File, why: str) -> None:
    """Without what it was written from, a file cannot be merged: it is kept beside."""
    aside = await round.set_aside(file)
    round.tell("conflicts", entry, f"{why}; what the file said is in {aside}", round.blocks[id].version)
    round.reasons[id] = "it was put aside"
    entry.taking = None


async def _origin(round: Round, block: Block, entry: Entry, file: File, wanted: Any) -> bool:
    """Find the version that a file of unknown origin is; else it is kept beside, and the block is written."""
    chain = block._chain
    begun = _begun(block, wanted)
    for number in range(chain.number, max(chain.number - RECENT, 0), -1):
        document = await chain.at(number)
        value = content.value_of(block.shape, document)
        if _is_same(file.suffix, value, wanted):
            entry.base = Base(number, document.frontiers, file.digest, chain.redactions)
            return True
        if number == 1 and begun is not None and _is_same(file.suffix, value, begun):
            entry.base = Base(
                number, document.frontiers, "", chain.redactions
            )  # the block was made of the file
            return True
    await _without_base(round, block.id, entry, file, "it is not known which version was edited")
    return False


def _begun(block: Block, wanted: Any) -> Any:
    """What a block begins with when it is made of a file: with defaults, and without entries and nodes."""
    kind, card = block.document_kind, block._card.value
    if kind in BEGIN_EMPTY:
        kept = [each for each in wanted if isinstance(each, dict) and (each.keys() & {*STAMPS, "id"})]
        return None if kept else []
    try:
        value = content.adopted("", wanted) if kind == "text" else wanted
        return content.value_of(block.shape, first_content(card, value)[0])
    except InputError:
        return None


async def _copy(block: Block, entry: Entry) -> Document:
    """The document as it was when the file was written, to be edited."""
    document = block._chain.document
    taking, entry.taking = entry.taking, None
    if taking is not None and document.knows(taking.frontiers):
        # They were taken in, and the file was not written since: what it says now comes on top of them.
        entry.base = replace(entry.base, frontiers=taking.frontiers, digest=taking.digest)
    if document.knows(entry.base.frontiers):
        return document.fork_at(entry.base.frontiers)
    return await block._chain.at(entry.base.version)


def _is_same(suffix: str, before: Any, wanted: Any) -> bool:
    same = content.same_text if suffix == content.TEXT else content.same
    return same(before, wanted)


def _edit(block: Block, entry: Entry, file: File, copy: Document, wanted: Any) -> Edit | None:
    before = content.value_of(block.shape, copy)
    if _is_same(file.suffix, before, wanted):
        entry.base = replace(entry.base, digest=file.digest)
        return None
    difference = Difference(copy)
    wanted = content.adopted(before, wanted) if file.suffix == content.TEXT else wanted
    difference.apply(block.shape, before, wanted)
    state = copy.frontiers
    if state == entry.base.frontiers:
        return None

    def change(document: Document) -> None:
        edit.rivals = [rival for each in difference.held if (rival := each.rival(document)) is not None]
        document.join(copy)
        settled = [each.settle(document) for each in difference.held]
        edit.lost = not all(settled)

    edit = Edit(block.id, entry, file, difference.operation, change)
    entry.taking = Taking(file.digest, state)
    return edit


def _edit_log(block: Block, entry: Entry, file: File, wanted: list[Any]) -> Edit | None:
    document = block._chain.document
    before = document.fork_at(entry.base.frontiers).entries()
    taken = [] if entry.taking is None else lines.those_in(document, entry.taking.lines)
    entry.taking = None
    fresh = lines.added(before, wanted, taken)
    if not fresh:
        entry.taking = Taking(file.digest, "", taken) if taken else None
        entry.base = replace(entry.base, digest=file.digest)
        return None
    made = lines.made(block, fresh)
    entry.taking = Taking(file.digest, "", taken + made)
    return Edit(block.id, entry, file, "append", lambda document: lines.append(document, made))


# -- taking it in -------------------------------------------------------------------------------


async def take(round: Round, edit: Edit) -> None:
    """Take in an edited file through the gate; what is refused is kept, and told."""
    block, entry = round.blocks[edit.id], edit.entry
    if round.dry_run:
        _foretell(round, block, edit)
        return
    try:
        version = await block._edit("sync", edit.operation, edit.change, round.by, f"from {entry.file}", None)
        if block.document_kind == "log":
            await lines.trim(block, round.by)
    except Denied as error:
        await _deny(round, edit.id, entry, edit.file, error)
    except InputError as error:
        _refuse(round, edit.id, entry, error.message)
    except (NotFound, Conflict, Corrupt) as error:
        await _without_base(round, edit.id, entry, edit.file, error.message)
    else:
        await _tell(round, edit, block, version)


async def _tell(round: Round, edit: Edit, block: Block, version: Version) -> None:
    entry = edit.entry
    others = version.number - entry.base.version - 1
    why = "edited" if others <= 0 else f"edited, and merged with {others} other version{'s'[: others != 1]}"
    round.tell("taken", entry, why, version.number)
    round.reasons[edit.id] = "merged" if others > 0 else "as it was taken in"
    aside = f"; what the file said is in {await round.set_aside(edit.file)}" if edit.lost else ""
    for rival in edit.rivals:
        round.tell("conflicts", entry, rival + aside, version.number)


def _foretell(round: Round, block: Block, edit: Edit) -> None:
    """What taking in a file would come to, as far as that is known without doing it."""
    standing = block._standing
    verdict = gate.judge(edit.operation, standing.for_operation(edit.operation), round.library.trust)
    edit.entry.taking = None
    if verdict.verdict == "deny":
        round.tell("refused", edit.entry, verdict.reason, block.version)
        return
    trial = block._chain.document.fork()
    try:
        _, before = block._measured(trial)
        edit.change(trial)
        block._fits(before, block._measured(trial)[1])
    except (InputError, errors.DocumentCorrupt) as error:
        round.tell("refused", edit.entry, error.message, block.version)
        return
    why = "edited" if verdict.verdict == "allow" else f"edited; {verdict.reason}"
    round.tell("taken", edit.entry, why, block.version)
    for rival in edit.rivals:
        round.tell("conflicts", edit.entry, rival, block.version)
