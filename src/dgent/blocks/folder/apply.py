"""Apply the edits of files to blocks: each file as one version, merged with the changes of others."""

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
from dgent.blocks.document.template import find_template
from dgent.blocks.edit.edit import Change, Edit
from dgent.blocks.folder import edits, format, header
from dgent.blocks.folder.disk import FolderFile
from dgent.blocks.folder.edits import FileEdits
from dgent.blocks.folder.format import label_of
from dgent.blocks.folder.round import Round
from dgent.blocks.folder.state import Base, FileEntry, Taking
from dgent.blocks.headers import remove_block
from dgent.blocks.history.version import Version
from dgent.blocks.kind import CONSTELLATION
from dgent.errors import Conflict, Corrupt, Denied, InputError, NotFound


async def delete_block(round: Round, id: str, entry: FileEntry) -> None:
    """Delete the block of a deleted file; one that somebody changed since is written again."""
    block = round.blocks[id]
    if not entry.base.version:
        return  # it was never written
    if _are_all_gone(round):
        round.add_report(
            "refused", entry, "every file is gone: no block is deleted for that", entry.base.version
        )
        round.reasons[id] = "every file was gone"
        return
    if id not in round.current:
        _report_conflict(round, id, entry)
        return
    if not round.dry_run:
        try:
            await remove_block(round.library._permissions, block, at=entry.base.version)
        except Denied as error:
            round.add_report("refused", entry, error.message, entry.base.version)
            round.reasons[id] = "it was deleted, which is not allowed"
            return
        except (Conflict, NotFound):
            _report_conflict(round, id, entry)
            return
        await round.remove(entry)
    round.add_report(
        "deleted", entry, "the file was deleted; `restore` brings the block back", entry.base.version
    )
    del round.ledger.entries[id], round.blocks[id]


def _report_conflict(round: Round, id: str, entry: FileEntry) -> None:
    round.add_report(
        "conflicts", entry, "the file was deleted, and the block has changed since", round.blocks[id].version
    )
    round.reasons[id] = "it has changed since its file was deleted"


def _are_all_gone(round: Round) -> bool:
    """Check whether all of several files are gone: that is rather a lost folder than an intention."""
    known = [entry for id, entry in round.ledger.entries.items() if id in round.blocks and entry.base.version]
    return len(known) > 1 and not any(round.file(entry.file) for entry in known)


async def remove_files(round: Round, id: str, entry: FileEntry) -> None:
    """Remove the files of a block that is gone, unless they were edited since."""
    file = round.file(entry.file)
    if file is not None and file.digest != entry.base.digest:
        why = "the block was deleted, or is not shared any more, and the file was edited: the file stays"
        round.add_report("conflicts", entry, why, entry.base.version)
        return
    await round.remove(entry)
    if file is not None:
        round.add_report(
            "deleted", entry, "the block was deleted, or is not shared any more", entry.base.version
        )
    del round.ledger.entries[id]


BEGIN_EMPTY = ("log", "tree")
MAKING = ("template", "document")
_GUESSED = {list: "list", dict: "map", int: "counter"}


async def create_block(round: Round, file: FolderFile, label: str, owner: str | None) -> None:
    """Create the block of a new file; an error is reported, and the file stays."""
    whose = owner or label_of(file.place.split("/")[1])

    def refuse(why: str) -> None:
        round.add_file_report("refused", label, whose, file.name, why)

    if file.problem:
        return refuse(file.problem)
    if owner not in (round.library.agent, CONSTELLATION):
        return refuse(f"only {whose} makes blocks of {whose}")
    taken = next((each for each in round.blocks.values() if (each.owner, each.label) == (whose, label)), None)
    if taken is not None:
        return refuse(f"{whose} has a block {label!r} already, in another file")
    try:
        wanted = format.decode(file.suffix, file.content)
        options = _options(_read_header(round, file), file.suffix, wanted)
        if round.dry_run:
            return round.add_file_report("taken", label, whose, file.name, "a new file becomes a block")
        block = await round.library.create(label, owner=whose, **options)
    except (InputError, Denied, Conflict) as error:
        return refuse(error.message)
    await block._version_log.refresh()
    # A log or a tree begins empty: the content of its file is then an edit. Others may have got defaults.
    entry = FileEntry(
        file.place, file.suffix, whose, label, Base(block.version, block._version_log.document.frontiers)
    )
    round.reasons[block.id] = "as it was applied"
    round.blocks[block.id], round.ledger.entries[block.id] = block, entry
    round.made.add(block.id)
    round.add_report("taken", entry, "a new file became a block", block.version)
    return None


def _read_header(round: Round, file: FolderFile) -> dict[str, Any]:
    """Read the header file beside a new file; raises InputError for anything it cannot use."""
    beside = round.file(f"{file.place}.toml")
    if beside is None:
        return {}
    if beside.problem:
        raise InputError(f"{beside.name}: {beside.problem}")
    found = header.decode(beside.content)
    for name in found:
        if name not in (*header.EDITABLE, *MAKING, "block"):
            raise InputError(f"{beside.name}: {name!r:.80} is not a known field")
    return found


def _options(described: dict[str, Any], suffix: str, wanted: Any) -> dict[str, Any]:
    """Return the options to create a block with, from its header file and its content."""
    fixed = described.get("block")
    said = {**(fixed if isinstance(fixed, dict) else {}), **described}
    options = {name: said[name] for name in (*header.EDITABLE[1:], *MAKING) if said.get(name) is not None}
    if type(options.get("pinned", False)) is not bool:
        raise InputError(f"expected true or false for pinned, got {options['pinned']!r:.60}", field="pinned")
    if "document" not in options and "template" not in options:
        guessed = {format.TEXT: "text", format.LINES: "log"}.get(suffix) or _GUESSED.get(type(wanted))
        if guessed is None:
            raise InputError(
                f"a block cannot be a {type(wanted).__name__}", hint="make it a list or an object"
            )
        options["document"] = guessed
    document = find_template(options.get("template"), options.get("document")).shape.document
    if format.suffix_of(document) != suffix:
        raise errors.TemplateError(
            f"a {document} is kept in a file that ends with {format.suffix_of(document)}"
        )
    if document not in BEGIN_EMPTY:
        options["value"] = format.adopt_line_end("", wanted) if suffix == format.TEXT else wanted
    return options


async def apply_header(round: Round, id: str, entry: FileEntry) -> None:
    """Apply the changes of a header file to the block."""
    changed = _find_header_changes(round, id, entry)
    if changed is None:
        return
    if id in round.renamed and "label" not in changed:
        changed["label"] = round.renamed[id]
    block = round.blocks[id]
    now = header.values_of(block)
    changed = {name: each for name, each in changed.items() if now[name] != each}
    for name, each in changed.items():
        if entry.header and now[name] != entry.header.get(name):
            why = f"{name} became {now[name]!r:.60} in the database; the file's {each!r:.60} counts"
            round.add_report("conflicts", entry, why, block.version)
    try:
        for name, each in changed.items():
            _check(name, each)
        if not round.dry_run:
            round.blocks[id] = await _change_header(round, block, changed)
    except (InputError, Conflict) as error:
        round.add_report(
            "refused", entry, f"{error.message}; {entry.header_file} stays as it is", block.version
        )
        round.held_headers.add(id)
    except (Denied, NotFound) as error:
        said = ", ".join(f"{name} = {each!r:.60}" for name, each in changed.items())
        round.add_report("refused", entry, f"{error.message}; {entry.header_file} said {said}", block.version)
    else:
        for name, each in changed.items():
            round.add_report("taken", entry, f"{name} is {each!r:.60} now", round.blocks[id].version)


def _find_header_changes(round: Round, id: str, entry: FileEntry) -> dict[str, Any] | None:
    """Return the changes in a header file; None when it cannot be read, which is reported."""
    file = round.file(entry.header_file)
    if file is None or file.digest == entry.header_digest:
        return {}
    block = round.blocks[id]
    try:
        if file.problem:
            raise InputError(file.problem)
        found = header.decode(file.content)
    except InputError as error:
        round.add_report("refused", entry, f"{file.name}: {error.message}; it stays as it is", block.version)
        round.held_headers.add(id)
        return None
    wrong = header.find_uneditable(block, found)
    for name in wrong:
        round.add_report("refused", entry, f"{name} cannot be changed in {file.name}", block.version)
    if not entry.header:
        return _report_unknown(round, entry, block, found)
    changed = header.find_edited(entry.header, found)
    if not changed and not wrong:
        entry.header_digest = file.digest  # only the formatting differs
    return changed


def _report_unknown(round: Round, entry: FileEntry, block: Block, found: dict[str, Any]) -> dict[str, Any]:
    """Report where a header file of unknown origin differs; none of it is applied."""
    for name, each in header.find_edited(header.values_of(block), found).items():
        why = f"{name} is not {each!r:.60}, as {entry.header_file} says; it is not known which is newer"
        round.add_report("conflicts", entry, why, block.version)
    return {}


def _check(name: str, value: Any) -> None:
    if type(value) is not header.TYPES[name]:
        raise InputError(f"{name} cannot be {value!r:.60}", field=name)


async def _change_header(round: Round, block: Block, changed: dict[str, Any]) -> Block:
    """Change the header with permission checks, the label last: until then the old one finds the block."""
    library, owner = round.library, block.owner
    rest = {name: each for name, each in changed.items() if name not in ("label", "pinned")}
    if rest:
        block = await library.describe(block.label, owner=owner, **rest)
    if "pinned" in changed:
        block = await library.pin(block.label, changed["pinned"], owner=owner)
    if "label" in changed:
        block = await library.rename(block.label, changed["label"], owner=owner)
    return block


RECENT = 32  # newest versions to compare with a file of unknown origin


@dataclass
class FileEdit:
    """An edited file that is about to be applied: the change, and the conflicts found on the way."""

    id: str
    entry: FileEntry
    file: FolderFile
    operation: str
    change: Change
    conflicts: list[str] = field(default_factory=list)
    lost: bool = False


async def plan(round: Round, id: str, entry: FileEntry, file: FolderFile) -> FileEdit | None:
    """Plan the edit of a file; None when it is not edited, or cannot be applied, which is reported."""
    try:
        return await _plan_edit(round, round.blocks[id], entry, file)
    except InputError as error:
        _refuse(round, id, entry, error.message)
    except Denied as error:
        await _deny(round, id, entry, file, error)
    except (NotFound, Corrupt) as error:
        await _set_aside(round, id, entry, file, error.message)
    return None


async def _plan_edit(round: Round, block: Block, entry: FileEntry, file: FolderFile) -> FileEdit | None:
    if file.problem:
        raise InputError(file.problem)
    wanted = format.decode(file.suffix, file.content)
    await block._document()
    if entry.base.frontiers and entry.base.redactions != block._version_log.redactions:
        raise errors.VersionNotFound("something was redacted since the file was written")
    if not entry.base.frontiers and not await _find_origin(round, block, entry, file, wanted):
        return None
    if file.digest == entry.base.digest and entry.taking is None:
        return None
    if block.document_kind == "log":
        return _edit_log(block, entry, file, wanted)
    return _edit(block, entry, file, await _fork_base(block, entry), wanted)


def _refuse(round: Round, id: str, entry: FileEntry, why: str) -> None:
    """Report an error that can be corrected in the editor; the file stays as it is."""
    round.add_report("refused", entry, f"{why}; the file stays as it is", entry.base.version or None)
    round.held.add(id)
    entry.taking = None


async def _deny(round: Round, id: str, entry: FileEntry, file: FolderFile, error: Denied) -> None:
    """Report a denied edit; its text is set aside, and the file is written again."""
    aside = await round.set_aside(file)
    round.add_report(
        "refused", entry, f"{error.message}; what the file said is in {aside}", round.blocks[id].version
    )
    round.reasons[id] = "its edit was refused"
    entry.taking = None


async def _set_aside(round: Round, id: str, entry: FileEntry, file: FolderFile, why: str) -> None:
    """Set a file aside that cannot be merged because its base version is gone or not known."""
    aside = await round.set_aside(file)
    round.add_report("conflicts", entry, f"{why}; what the file said is in {aside}", round.blocks[id].version)
    round.reasons[id] = "it was put aside"
    entry.taking = None


async def _find_origin(round: Round, block: Block, entry: FileEntry, file: FolderFile, wanted: Any) -> bool:
    """Find the version that a file of unknown origin was written from; else set the file aside."""
    log = block._version_log
    begun = _initial_value(block, wanted)
    for number in range(log.number, max(log.number - RECENT, 0), -1):
        document = await log.at(number)
        value = format.value_of(block.shape, document)
        if _is_same(file.suffix, value, wanted):
            entry.base = Base(number, document.frontiers, file.digest, log.redactions)
            return True
        if number == 1 and begun is not None and _is_same(file.suffix, value, begun):
            # The block was created from the file.
            entry.base = Base(number, document.frontiers, "", log.redactions)
            return True
    await _set_aside(round, block.id, entry, file, "it is not known which version was edited")
    return False


def _initial_value(block: Block, wanted: Any) -> Any:
    """Return the first content of a block created from a file: with defaults, without entries and nodes."""
    kind, header = block.document_kind, block._header.value
    if kind in BEGIN_EMPTY:
        kept = [each for each in wanted if isinstance(each, dict) and (each.keys() & {*STAMPS, "id"})]
        return None if kept else []
    try:
        value = format.adopt_line_end("", wanted) if kind == "text" else wanted
        return format.value_of(block.shape, first_content(header, value)[0])
    except InputError:
        return None


async def _fork_base(block: Block, entry: FileEntry) -> Document:
    """Return a copy of the document as of when the file was written, to be edited."""
    document = block._version_log.document
    taking, entry.taking = entry.taking, None
    if taking is not None and document.knows(taking.frontiers):
        # They were applied, and the file was not written since: its present edits come on top of them.
        entry.base = replace(entry.base, frontiers=taking.frontiers, digest=taking.digest)
    if document.knows(entry.base.frontiers):
        return document.fork_at(entry.base.frontiers)
    return await block._version_log.at(entry.base.version)


def _is_same(suffix: str, before: Any, wanted: Any) -> bool:
    same = format.is_same_text if suffix == format.TEXT else format.is_same
    return same(before, wanted)


def _edit(block: Block, entry: FileEntry, file: FolderFile, copy: Document, wanted: Any) -> FileEdit | None:
    before = format.value_of(block.shape, copy)
    if _is_same(file.suffix, before, wanted):
        entry.base = replace(entry.base, digest=file.digest)
        return None
    difference = FileEdits(copy)
    wanted = format.adopt_line_end(before, wanted) if file.suffix == format.TEXT else wanted
    difference.apply(block.shape, before, wanted)
    state = copy.frontiers
    if state == entry.base.frontiers:
        return None

    def change(document: Document) -> None:
        edit.conflicts = [
            conflict for each in difference.values if (conflict := each.find_conflict(document)) is not None
        ]
        document.join(copy)
        settled = [each.settle(document) for each in difference.values]
        edit.lost = not all(settled)

    edit = FileEdit(block.id, entry, file, difference.operation, change)
    entry.taking = Taking(file.digest, state)
    return edit


def _edit_log(block: Block, entry: FileEntry, file: FolderFile, wanted: list[Any]) -> FileEdit | None:
    document = block._version_log.document
    before = document.fork_at(entry.base.frontiers).entries()
    taken = [] if entry.taking is None else edits.select_present(document, entry.taking.lines)
    entry.taking = None
    fresh = edits.find_added(before, wanted, taken)
    if not fresh:
        entry.taking = Taking(file.digest, "", taken) if taken else None
        entry.base = replace(entry.base, digest=file.digest)
        return None
    made = edits.build_entries(block, fresh)
    entry.taking = Taking(file.digest, "", taken + made)
    return FileEdit(block.id, entry, file, "append", lambda document: edits.append(document, made))


# -- applying an edit -------------------------------------------------------------------------------


async def apply_edit(round: Round, edit: FileEdit) -> None:
    """Apply an edited file with permission checks; a refused edit is reported, and its text kept."""
    block, entry = round.blocks[edit.id], edit.entry
    if round.dry_run:
        _predict(round, block, edit)
        return
    try:
        version = await block._edit(Edit("sync", edit.operation, edit.change, round.by, f"from {entry.file}"))
        if block.document_kind == "log":
            await block._trim(round.by)
    except Denied as error:
        await _deny(round, edit.id, entry, edit.file, error)
    except InputError as error:
        _refuse(round, edit.id, entry, error.message)
    except (NotFound, Conflict, Corrupt) as error:
        await _set_aside(round, edit.id, entry, edit.file, error.message)
    else:
        await _report_edit(round, edit, block, version)


async def _report_edit(round: Round, edit: FileEdit, block: Block, version: Version) -> None:
    entry = edit.entry
    others = version.number - entry.base.version - 1
    why = "edited" if others <= 0 else f"edited, and merged with {others} other version{'s'[: others != 1]}"
    round.add_report("taken", entry, why, version.number)
    round.reasons[edit.id] = "merged" if others > 0 else "as it was applied"
    aside = f"; what the file said is in {await round.set_aside(edit.file)}" if edit.lost else ""
    for conflict in edit.conflicts:
        round.add_report("conflicts", entry, conflict + aside, version.number)


def _predict(round: Round, block: Block, edit: FileEdit) -> None:
    """Report the result of applying a file without doing it, as far as that can be known."""
    allowed = block._block_permission.for_operation(edit.operation)
    judgement = permission.judge(edit.operation, allowed, round.library.trust)
    edit.entry.taking = None
    if judgement.verdict == "deny":
        round.add_report("refused", edit.entry, judgement.reason, block.version)
        return
    trial = block._version_log.document.fork()
    try:
        _, before = block._measure(trial)
        edit.change(trial)
        block._check_limit(before, block._measure(trial)[1])
    except (InputError, errors.DocumentCorrupt) as error:
        round.add_report("refused", edit.entry, error.message, block.version)
        return
    why = "edited" if judgement.verdict == "allow" else f"edited; {judgement.reason}"
    round.add_report("taken", edit.entry, why, block.version)
    for conflict in edit.conflicts:
        round.add_report("conflicts", edit.entry, conflict, block.version)
