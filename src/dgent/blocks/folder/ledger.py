"""What a folder knows of its files: from which version each was written, so that both sides are told apart.

A step that is about to be done is noted before it is done. So a sync that was killed is told by the next one
what it had in hand, and nothing is done twice.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from dgent.errors import Corrupt, InputError

FORMAT = 1


class Base(msgspec.Struct, omit_defaults=True):
    """What a file was written from, or last read as: a state of the document, and the bytes it had then."""

    version: int = 0
    frontiers: str = ""
    digest: str = ""
    redactions: int = 0


class Line(msgspec.Struct, omit_defaults=True):
    """An entry of a log that was taken in: as it stood in the file, and as it is kept."""

    given: Any
    kept: dict[str, Any]


class Taking(msgspec.Struct, omit_defaults=True):
    """Edits that are being taken in: of which bytes, and the state that they make; of a log the lines."""

    digest: str
    frontiers: str = ""
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
    card_digest: str = ""
    writing: Base | None = None
    card_writing: tuple[str, dict[str, Any]] | None = None
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
    """Everything a folder knows: whose it is, and its blocks by id."""

    format: int = FORMAT
    agent: str = ""
    entries: dict[str, Entry] = msgspec.field(default_factory=dict)

    def encoded(self) -> bytes:
        """The bytes of the file it is kept in."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


def load(given: bytes | None, agent: str) -> Ledger:
    """The ledger of a folder, a new one when it has none; of another agent's it is refused."""
    if given is None:
        return Ledger(agent=agent)
    try:
        made = msgspec.json.decode(given, type=Ledger)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "remove .blocks: files that differ from the database are then kept aside"
        raise Corrupt(f"what the folder knows of its files cannot be read: {error}", hint=hint) from None
    if made.format > FORMAT:
        raise Corrupt("the folder was written by a newer dgent", hint="upgrade dgent")
    if made.agent != agent:
        raise InputError(
            f"the folder has the blocks of {made.agent}, not of {agent}", hint="use another folder"
        )
    return made


def digest(given: bytes) -> str:
    """What stands for some bytes."""
    return hashlib.sha256(given).hexdigest()


def content_key(id: str) -> str:
    """What a block's content is called while it is ready to be written."""
    return f"{id}/content"


def card_key(id: str) -> str:
    """What a block's card is called while it is ready to be written."""
    return f"{id}/card"
