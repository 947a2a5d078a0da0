"""Edits of files, taken into the database: each file's as one version, merged with what others did since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from dgent.blocks import errors
from dgent.blocks.access import permission
from dgent.blocks.block import Block
from dgent.blocks.document.default import first_content
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import STAMPS
from dgent.blocks.document.template import find
from dgent.blocks.edit.editable import Change
from dgent.blocks.folder import edits, format, header
from dgent.blocks.folder.disk import File
from dgent.blocks.folder.edits import Difference
from dgent.blocks.folder.format import label_of
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import Base, Entry, Taking
from dgent.blocks.history.version import Version
from dgent.blocks.kind import CONSTELLATION
from dgent.errors import Conflict, Corrupt, Denied, InputError, NotFound


async def remove(round: Round, id: str, entry: Entry) -> None:
    """Delete the block of a deleted file; one that somebody changed since is written again."""
    block = round.blocks[id]
    if not entry.base.version:
        return  # it was never written
    if _all_gone(round):
        round.tell("refused", entry, "every file is gone: no block is deleted for that", entry.base.version)
        round.reasons[id] = "every file was gone"
        return
    if id not in round.current:
        _keep(round, id, entry)
        return
    if not round.dry_run:
        try:
            await round.library._remove(block, at=entry.base.version)
        except Denied as error:
            round.tell("refused", entry, error.message, entry.base.version)
            round.reasons[id] = "it was deleted, which is not allowed"
            return
        except (Conflict, NotFound):
            _keep(round, id, entry)
            return
        await round.remove(entry)
    round.tell("deleted", entry, "the file was deleted; `restore` brings the block back", entry.base.version)
    del round.ledger.entries[id], round.blocks[id]


def _keep(round: Round, id: str, entry: Entry) -> None:
    round.tell(
        "conflicts", entry, "the file was deleted, and the block has changed since", round.blocks[id].version
    )
    round.reasons[id] = "it has changed since its file was deleted"


def _all_gone(round: Round) -> bool:
    """Whether no file is left of several: that is rather a lost folder than a wish."""
    known = [entry for id, entry in round.ledger.entries.items() if id in round.blocks and entry.base.version]
    return len(known) > 1 and not any(round.file(entry.file) for entry in known)


async def leave(round: Round, id: str, entry: Entry) -> None:
    """Remove the files of a block that is not there any more, unless they were edited since."""
    file = round.file(entry.file)
    if file is not None and file.digest != entry.base.digest:
        why = "the block was deleted, or is not shared any more, and the file was edited: the file stays"
        round.tell("conflicts", entry, why, entry.base.version)
        return
    await round.remove(entry)
    if file is not None:
        round.tell("deleted", entry, "the block was deleted, or is not shared any more", entry.base.version)
    del round.ledger.entries[id]


BEGIN_EMPTY = ("log", "tree")
MAKING = ("template", "document")
_GUESSED = {list: "list", dict: "map", int: "counter"}


async def make(round: Round, file: File, label: str, owner: str | None) -> None:
    """Make the block of a new file; what is wrong with it is told, and the file stays."""
    whose = owner or label_of(file.place.split("/")[1])

    def refuse(why: str) -> None:
        round.tell_of("refused", label, whose, file.name, why)

    if file.problem:
        return refuse(file.problem)
    if owner not in (round.library.agent, CONSTELLATION):
        return refuse(f"only {whose} makes blocks of {whose}")
    taken = next((each for each in round.blocks.values() if (each.owner, each.label) == (whose, label)), None)
    if taken is not None:
        return refuse(f"{whose} has a block {label!r} already, in another file")
    try:
        wanted = format.decoded(file.suffix, file.content)
        options = _options(_described(round, file), file.suffix, wanted)
        if round.dry_run:
            return round.tell_of("taken", label, whose, file.name, "a new file becomes a block")
        block = await round.library.create(label, owner=whose, **options)
    except (InputError, Denied, Conflict) as error:
        return refuse(error.message)
    await block._chain.refresh()
    # A log or a tree begins empty: what its file holds is then an edit. Others may have got defaults.
    entry = Entry(file.place, file.suffix, whose, label, Base(block.version, block._chain.document.frontiers))
    round.reasons[block.id] = "as it was taken in"
    round.blocks[block.id], round.ledger.entries[block.id] = block, entry
    round.made.add(block.id)
    round.tell("taken", entry, "a new file became a block", block.version)
    return None


def _described(round: Round, file: File) -> dict[str, Any]:
    """What the card beside a new file says: all of it must mean something, as it is written anew."""
    beside = round.file(f"{file.place}.toml")
    if beside is None:
        return {}
    if beside.problem:
        raise InputError(f"{beside.name}: {beside.problem}")
    found = header.decoded(beside.content)
    for name in found:
        if name not in (*header.EDITABLE, *MAKING, "block"):
            raise InputError(f"{beside.name}: there is no {name!r:.80}")
    return found


def _options(described: dict[str, Any], suffix: str, wanted: Any) -> dict[str, Any]:
    """What to make a block with: what its card says, and what its file holds."""
    told = described.get("block")
    said = {**(told if isinstance(told, dict) else {}), **described}
    options = {name: said[name] for name in (*header.EDITABLE[1:], *MAKING) if said.get(name) is not None}
    if type(options.get("pinned", False)) is not bool:
        raise InputError("pinned is true or false", field="pinned")
    if "document" not in options and "template" not in options:
        guessed = {format.TEXT: "text", format.LINES: "log"}.get(suffix) or _GUESSED.get(type(wanted))
        if guessed is None:
            raise InputError(f"a block is no {type(wanted).__name__}", hint="make it a list or an object")
        options["document"] = guessed
    document = find(options.get("template"), options.get("document")).shape.document
    if format.suffix_of(document) != suffix:
        raise errors.TemplateError(
            f"a {document} is kept in a file that ends with {format.suffix_of(document)}"
        )
    if document not in BEGIN_EMPTY:
        options["value"] = format.adopted("", wanted) if suffix == format.TEXT else wanted
    return options


async def describe(round: Round, id: str, entry: Entry) -> None:
    """Take over what was changed of a card in the folder."""
    changed = _changed(round, id, entry)
    if changed is None:
        return
    if id in round.renamed and "label" not in changed:
        changed["label"] = round.renamed[id]
    block = round.blocks[id]
    now = header.values_of(block)
    changed = {name: each for name, each in changed.items() if now[name] != each}
    for name, each in changed.items():
        if entry.card and now[name] != entry.card.get(name):
            why = f"{name} became {now[name]!r:.60} in the database; the file's {each!r:.60} counts"
            round.tell("conflicts", entry, why, block.version)
    try:
        for name, each in changed.items():
            _check(name, each)
        if not round.dry_run:
            round.blocks[id] = await _apply(round, block, changed)
    except (InputError, Conflict) as error:
        round.tell("refused", entry, f"{error.message}; {entry.card_file} stays as it is", block.version)
        round.held_cards.add(id)
    except (Denied, NotFound) as error:
        said = ", ".join(f"{name} = {each!r:.60}" for name, each in changed.items())
        round.tell("refused", entry, f"{error.message}; {entry.card_file} said {said}", block.version)
    else:
        for name, each in changed.items():
            round.tell("taken", entry, f"{name} is {each!r:.60} now", round.blocks[id].version)


def _changed(round: Round, id: str, entry: Entry) -> dict[str, Any] | None:
    """What a card's file says otherwise; None when it cannot be read, which is told."""
    file = round.file(entry.card_file)
    if file is None or file.digest == entry.card_digest:
        return {}
    block = round.blocks[id]
    try:
        if file.problem:
            raise InputError(file.problem)
        found = header.decoded(file.content)
    except InputError as error:
        round.tell("refused", entry, f"{file.name}: {error.message}; it stays as it is", block.version)
        round.held_cards.add(id)
        return None
    wrong = header.overstepped(block, found)
    for name in wrong:
        round.tell("refused", entry, f"{name} cannot be changed in {file.name}", block.version)
    if not entry.card:
        return _unknown(round, entry, block, found)
    changed = header.edited(entry.card, found)
    if not changed and not wrong:
        entry.card_digest = file.digest  # it only looks otherwise
    return changed


def _unknown(round: Round, entry: Entry, block: Block, found: dict[str, Any]) -> dict[str, Any]:
    """Of a card of unknown origin nothing is taken over, and it is told where it differs."""
    for name, each in header.edited(header.values_of(block), found).items():
        why = (
            f"{name} is not {each!r:.60}, as {entry.card_file} says, and which of them is newer is not known"
        )
        round.tell("conflicts", entry, why, block.version)
    return {}


def _check(name: str, value: Any) -> None:
    if type(value) is not header.TYPES[name]:
        raise InputError(f"{name} cannot be {value!r:.60}", field=name)


async def _apply(round: Round, block: Block, changed: dict[str, Any]) -> Block:
    """Change the card through the gate, the label last: until then the block is found by its old one."""
    library, owner = round.library, block.owner
    rest = {name: each for name, each in changed.items() if name not in ("label", "pinned")}
    if rest:
        block = await library.describe(block.label, owner=owner, **rest)
    if "pinned" in changed:
        block = await library.pin(block.label, changed["pinned"], owner=owner)
    if "label" in changed:
        block = await library.rename(block.label, changed["label"], owner=owner)
    return block


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
    wanted = format.decoded(file.suffix, file.content)
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
        value = format.value_of(block.shape, document)
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
        value = format.adopted("", wanted) if kind == "text" else wanted
        return format.value_of(block.shape, first_content(card, value)[0])
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
    same = format.same_text if suffix == format.TEXT else format.same
    return same(before, wanted)


def _edit(block: Block, entry: Entry, file: File, copy: Document, wanted: Any) -> Edit | None:
    before = format.value_of(block.shape, copy)
    if _is_same(file.suffix, before, wanted):
        entry.base = replace(entry.base, digest=file.digest)
        return None
    difference = Difference(copy)
    wanted = format.adopted(before, wanted) if file.suffix == format.TEXT else wanted
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
    taken = [] if entry.taking is None else edits.those_in(document, entry.taking.lines)
    entry.taking = None
    fresh = edits.added(before, wanted, taken)
    if not fresh:
        entry.taking = Taking(file.digest, "", taken) if taken else None
        entry.base = replace(entry.base, digest=file.digest)
        return None
    made = edits.made(block, fresh)
    entry.taking = Taking(file.digest, "", taken + made)
    return Edit(block.id, entry, file, "append", lambda document: edits.append(document, made))


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
            await edits.trim(block, round.by)
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
    verdict = permission.judge(edit.operation, standing.for_operation(edit.operation), round.library.trust)
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
