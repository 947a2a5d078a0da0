"""What a folder knows of its files: from which version each was written, so that both sides are told apart.

A step that is about to be done is noted before it is done. So a sync that was killed is told by the next one
what it had in hand, and nothing is done twice.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

from dgent import ids
from dgent.blocks.folder.directory import NEVER
from dgent.blocks.folder.format import SUFFIXES, folded
from dgent.blocks.folder.header import TYPES
from dgent.errors import Corrupt, InputError

FORMAT = 1
SHARED = "shared"
_MAX_BYTES = 255


Digest = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
State = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9+/]{0,65536}={0,2}$")]
Count = Annotated[int, msgspec.Meta(ge=0, lt=10**10)]


class Base(msgspec.Struct, omit_defaults=True):
    """What a file was written from, or last read as: a state of the document, and the bytes it had then."""

    version: Count = 0
    frontiers: State = ""
    digest: Digest = ""
    redactions: Count = 0


class Line(msgspec.Struct, omit_defaults=True):
    """An entry of a log that was taken in: as it stood in the file, and as it is kept."""

    given: Any
    kept: dict[str, Any]


class Taking(msgspec.Struct, omit_defaults=True):
    """Edits that are being taken in: of which bytes, and the state that they make; of a log the lines."""

    digest: Digest
    frontiers: State = ""
    lines: list[Line] = []


class Entry(msgspec.Struct, omit_defaults=True):
    """One block in a folder: where its files are, without suffix, and what they were written from.

    `writing` and `card_writing` are of files that are ready to be written, and are written when they are not
    ready any more. `taking` is of edits being taken in, `moving` is where the files are being moved to.
    """

    place: str
    suffix: str
    owner: str
    label: str
    base: Base = msgspec.field(default_factory=Base)
    card: dict[str, Any] = {}
    card_digest: Digest = ""
    writing: Base | None = None
    card_writing: tuple[Digest, dict[str, Any]] | None = None
    taking: Taking | None = None
    moving: str | None = None

    @property
    def file(self) -> str:
        """The file with the content."""
        return self.place + self.suffix

    @property
    def card_file(self) -> str:
        """The file that describes the block."""
        return f"{self.place}.toml"


class Ledger(msgspec.Struct, omit_defaults=True):
    """Everything a folder knows: whose it is, the epoch of the store, and its blocks by id."""

    format: int = FORMAT
    agent: str = ""
    store: str = ""
    entries: dict[str, Entry] = msgspec.field(default_factory=dict)

    def encoded(self) -> bytes:
        """The bytes of the file it is kept in."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


class _Given(msgspec.Struct):
    """A ledger as it was found: its entries are judged one by one."""

    format: int = FORMAT
    agent: str = ""
    store: str = ""
    entries: dict[str, msgspec.Raw] = {}


def load(given: bytes | None, agent: str) -> tuple[Ledger, list[str]]:
    """The ledger of a folder, and what of it is not valid and left out; a new one when it has none.

    The file may come from anybody. Raises Corrupt when nothing of it can be read, InputError when it is
    another agent's.
    """
    if given is None:
        return Ledger(agent=agent), []
    try:
        found = msgspec.json.decode(given, type=_Given)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "remove .blocks: files that differ from the database are then kept aside"
        raise Corrupt(f"what the folder knows of its files cannot be read: {error}", hint=hint) from None
    if found.format > FORMAT:
        raise Corrupt("the folder was written by a newer dgent", hint="upgrade dgent")
    if found.agent != agent:
        raise InputError(
            f"the folder has the blocks of {found.agent!r:.80}, not of {agent}", hint="use another folder"
        )
    made, wrong, places = Ledger(agent=agent, store=found.store), [], set[str]()
    for id, raw in found.entries.items():
        try:
            entry = _entry(id, raw)
            if not places.isdisjoint(mine := {folded(each) for each in (entry.place, entry.moving) if each}):
                raise ValueError("another block has its place")
        except (msgspec.MsgspecError, InputError, ValueError, RecursionError) as error:
            wrong.append(f"what it says of {id!r:.80} is not valid, and ignored: {error}"[:300])
        else:
            made.entries[id] = entry
            places |= mine
    return made, wrong


def _entry(id: str, raw: msgspec.Raw) -> Entry:
    """One entry, with every field checked; raises ValueError, InputError or an error of msgspec."""
    entry = msgspec.json.decode(raw, type=Entry)
    ids.check_id(id)
    ids.check_name(entry.owner, "owner")
    ids.check_name(entry.label, "label")
    if entry.suffix not in SUFFIXES:
        raise ValueError(f"its files cannot end with {entry.suffix!r:.80}")
    for place in (entry.place, entry.moving):
        if place is not None:
            check_place(place)
    for values in (entry.card, entry.card_writing[1] if entry.card_writing else {}):
        if any(type(each) is not TYPES.get(name) for name, each in values.items()):
            raise ValueError("its card has values that no card has")
    return entry


def check_place(place: str) -> None:
    """Refuse a place that no file of a block can have: one outside of the folder, or of a hidden file."""
    *above, last = steps = place.split("/")
    hidden = any(step[:1] in ("", ".") or any(sign in step for sign in NEVER) for step in steps)
    if hidden or last[0] in "~#" or (above and (len(above) != 2 or above[0] != SHARED)):
        raise ValueError(f"its place cannot be {place!r:.80}")
    if len(last.encode()) > _MAX_BYTES:
        raise ValueError("its place is too long")


def digest(given: bytes) -> str:
    """What stands for some bytes."""
    return hashlib.sha256(given).hexdigest()


def content_key(id: str) -> str:
    """What a block's content is called while it is ready to be written."""
    return f"{id}/content"


def card_key(id: str) -> str:
    """What a block's card is called while it is ready to be written."""
    return f"{id}/card"
