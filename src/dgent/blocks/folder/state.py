"""The ledger of a folder: from which version each file was written, so that edits can be told apart.

A step is recorded before it is done. So the next sync after a crash knows what was in progress, and nothing
is done twice.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

from dgent import ids
from dgent.blocks.folder.format import MAX_DEPTH, SUFFIXES, normalize_name
from dgent.blocks.folder.header import TYPES
from dgent.errors import Corrupt, InputError
from dgent.system.directory import NEVER

FORMAT = 1
SHARED = "shared"
_MAX_BYTES = 255


Digest = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
State = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9+/]{0,65536}={0,2}$")]
Count = Annotated[int, msgspec.Meta(ge=0, lt=10**10)]


_STORED = {"header": "card", "header_digest": "card_digest", "header_writing": "card_writing"}


class Base(msgspec.Struct, omit_defaults=True):
    """The state a file was written from, or last read as: a version of the document, and a digest."""

    version: Count = 0
    frontiers: State = ""
    digest: Digest = ""
    redactions: Count = 0


class LogLine(msgspec.Struct, omit_defaults=True):
    """An entry of a log that was applied: as it was in the file, and as it is stored."""

    given: Any
    kept: dict[str, Any]


class Taking(msgspec.Struct, omit_defaults=True):
    """Edits that are being applied: the digest of the file, the resulting state, or the lines of a log."""

    digest: Digest
    frontiers: State = ""
    lines: list[LogLine] = []


class FileEntry(msgspec.Struct, omit_defaults=True, rename=_STORED):
    """One block in a folder: the place of its files, without suffix, and the state they were written from.

    `writing` and `header_writing` are staged files; when they are no longer staged, they were written.
    `taking` is an edit being applied, `moving` the place that the files are being moved to.
    """

    place: str
    suffix: str
    owner: str
    label: str
    base: Base = msgspec.field(default_factory=Base)
    header: dict[str, Any] = {}
    header_digest: Digest = ""
    writing: Base | None = None
    header_writing: tuple[Digest, dict[str, Any]] | None = None
    taking: Taking | None = None
    moving: str | None = None

    @property
    def file(self) -> str:
        """The name of the content file."""
        return self.place + self.suffix

    @property
    def header_file(self) -> str:
        """The name of the header file."""
        return f"{self.place}.toml"


class FolderLedger(msgspec.Struct, omit_defaults=True):
    """The ledger of a folder: its agent, the epoch of the store, and its blocks by id."""

    format: int = FORMAT
    agent: str = ""
    store: str = ""
    entries: dict[str, FileEntry] = msgspec.field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the bytes of the ledger file."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


class _RawLedger(msgspec.Struct):
    """A ledger as it was read, with entries that are not checked yet."""

    format: int = FORMAT
    agent: str = ""
    store: str = ""
    entries: dict[str, msgspec.Raw] = {}


def load(given: bytes | None, agent: str) -> tuple[FolderLedger, list[str]]:
    """Return the ledger of a folder and its invalid entries, which are left out; a new one without a file.

    The file may come from anybody. Raises Corrupt when it cannot be read at all, InputError when it is
    another agent's.
    """
    if given is None:
        return FolderLedger(agent=agent), []
    try:
        found = msgspec.json.decode(given, type=_RawLedger)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "remove .blocks: files that differ from the database are then kept aside"
        raise Corrupt(f"the ledger of the folder cannot be read: {error}", hint=hint) from None
    if found.format > FORMAT:
        raise Corrupt("the folder was written by a newer dgent", hint="upgrade dgent")
    if found.agent != agent:
        raise InputError(
            f"the folder has the blocks of {found.agent!r:.80}, not of {agent}", hint="use another folder"
        )
    made, wrong, places = FolderLedger(agent=agent, store=found.store), [], set[str]()
    for id, raw in found.entries.items():
        try:
            entry = _decode_entry(id, raw)
            if not places.isdisjoint(
                mine := {normalize_name(each) for each in (entry.place, entry.moving) if each}
            ):
                raise ValueError("another block has its place")
        except (msgspec.MsgspecError, InputError, ValueError, RecursionError) as error:
            wrong.append(f"the entry of {id!r:.80} is not valid, and ignored: {error}"[:300])
        else:
            made.entries[id] = entry
            places |= mine
    return made, wrong


def _decode_entry(id: str, raw: msgspec.Raw) -> FileEntry:
    """Decode and check one entry; raises ValueError, InputError or an error of msgspec."""
    entry = msgspec.json.decode(raw, type=FileEntry)
    ids.check_id(id)
    ids.check_name(entry.owner, "owner")
    ids.check_name(entry.label, "label")
    if entry.suffix not in SUFFIXES:
        raise ValueError(f"its files cannot end with {entry.suffix!r:.80}")
    for place in (entry.place, entry.moving):
        if place is not None:
            check_place(place)
    for values in (entry.header, entry.header_writing[1] if entry.header_writing else {}):
        if any(type(each) is not TYPES.get(name) for name, each in values.items()):
            raise ValueError("its header has invalid values")
    return entry


def check_place(place: str) -> None:
    """Raise ValueError for a place outside of the folder, or that of a hidden file."""
    *above, last = steps = place.split("/")
    hidden = any(step[:1] in ("", ".") or any(sign in step for sign in NEVER) for step in steps)
    lost = bool(above) and normalize_name(above[0]) == SHARED and (above[0] != SHARED or len(above) < 2)
    if hidden or last[0] in "~#" or lost:
        raise ValueError(f"its place cannot be {place!r:.80}")
    if len(steps) > MAX_DEPTH + 2 or any(len(step.encode()) > _MAX_BYTES for step in steps):
        raise ValueError("its place is too long")


def digest(given: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(given).hexdigest()


def content_key(id: str) -> str:
    """Return the key under which a block's content is staged."""
    return f"{id}/content"


def header_key(id: str) -> str:
    """Return the key under which a block's header is staged."""
    return f"{id}/card"
