"""The lines of a JSONL store: their fields, their checksums, and parsing them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from dgent.model.vector import VectorSpec
from dgent.store.jsonl.validate import check_line

MAX_BYTES = 96 * 1024 * 1024  # enough for the largest record of a store, with its content as base64

_SUM = b',"sum":"'
_TAIL = len(_SUM) + 16 + 2  # the checksum field at the end of a line, with the brace that closes it
_BOM = b"\xef\xbb\xbf"  # some editors put it at the beginning of a file
_HEX = frozenset(b"0123456789abcdef")
_encode = msgspec.json.Encoder().encode

Prev = str | list[str] | None
"""The sum of the line that a line replaces, or several sums if it settles a conflict."""


class RecordLine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One version of a record, in the order in which its keys are written.

    `n` decides when its commit counts: absent, with this line alone; a number, with that many lines of the
    commit in the same file; 0, with its mark in `_commits.jsonl`. `keep` is how many older versions
    to keep, `after` the last rev of a forgotten record that had the same id. `by`, `kind`,
    `note`, `of`, `key` and `digest` are about the commit, in its first line. `disputed` are the fields
    that two copies changed, in a line that merges them; if it is absent there, all fields may be.
    """

    id: str
    rev: int = 0
    seq: int | None = None
    c: str | None = None
    i: int = 0
    n: int | None = None
    at: datetime | None = None
    op: Literal["put", "delete"] = "put"
    created_at: datetime | None = None
    schema: str | None = None
    schema_version: int | None = None
    author: str | None = None
    source: str | None = None
    parent_id: str | None = None
    tags: list[str] = []
    extra: dict[str, Any] | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")
    content: bytes = b""
    keep: int | None = None
    after: int = 0
    by: str | None = None
    kind: str = "data"
    note: str | None = None
    of: str | None = None
    key: str | None = None
    digest: str | None = None
    disputed: list[str] | None = None
    prev: Prev = None
    sum: str | None = None


class CommitMark(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A line of `_commits.jsonl`: decides a commit over several files, or holds what record lines cannot.

    `n` is how many record lines the commit has; absent, the commit counts with the lines it has. `same` are
    ops that changed nothing, `past` ops whose lines were compacted, `quiet` the places of those that
    stay off the feed, `gone` ops on records that were forgotten since, `forget` hashes of forgotten ids
    with their last revs, `lines` the sums of the erased lines for those hashes whose id another copy may
    have given to another record, `drops` the first kept revs of records after a retention rule, `floor`
    the newest seq whose history is incomplete, `removed` the commits that were incomplete when their lines
    were removed with those of a forgotten record: they count only when they are whole again.
    """

    c: str
    seq: int | None = None
    at: datetime
    n: int | None = None
    by: str | None = None
    kind: str = "data"
    note: str | None = None
    of: str | None = None
    key: str | None = None
    digest: str | None = None
    same: list[tuple[int, str | None, int]] = []
    past: list[tuple[int, str, Literal["put", "delete"], int]] = []
    quiet: list[int] = []
    gone: list[tuple[int, Literal["put", "delete"], int]] = []
    forget: list[tuple[str, int]] = []
    lines: dict[str, list[str]] = {}
    drops: dict[str, int] = {}
    floor: int | None = None
    expired: datetime | None = None
    removed: list[str] = []
    sum: str | None = None

    @property
    def thins(self) -> bool:
        """True if the mark holds a retention rule, not a commit."""
        return bool(self.drops) or self.floor is not None or self.expired is not None


class SchemaLine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A line of `_schemas.jsonl`: the declaration of a schema from its time on."""

    schema: str
    at: datetime
    version: int = 0
    indexes: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    history: str | int = "all"
    feed: bool = True
    owner: str | None = None
    digest: str = ""
    text: tuple[tuple[str, int], ...] = ()
    tokenizer: str = ""
    dates: str = ""
    thread: str = ""
    vector: VectorSpec | None = None
    sum: str | None = None


class ParsedLine(NamedTuple):
    """A parsed line: `sum` is the checksum of its bytes, `hand` is True if the line states another one."""

    line: Any
    sum: str
    hand: bool


_decoders: dict[type, Any] = {
    kind: msgspec.json.Decoder(kind) for kind in (RecordLine, CommitMark, SchemaLine)
}
_DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError)


def seal_line(fields: Mapping[str, Any]) -> tuple[bytes, str]:
    """Encode fields as a line with its checksum and a newline; return the line and the checksum."""
    body: bytes = _encode(fields)
    made = hashlib.sha256(body).hexdigest()[:16]
    return b'%s,"sum":"%s"}\n' % (body[:-1], made.encode()), made


def seal(line: Any) -> bytes:
    """Encode a line with its checksum and a newline."""
    return seal_line(fields_of(line))[0]


def fields_of(line: Any) -> dict[str, Any]:
    """Return the fields of a line that differ from their defaults, in order, without the checksum."""
    found = {}
    for field in msgspec.structs.fields(line):
        value = getattr(line, field.name)
        if field.name != "sum" and (field.required or value != _default(field)):
            found[field.name] = value
    return found


def _default(field: Any) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def strip_line(raw: bytes) -> bytes:
    """Strip the newline, surrounding blanks and a byte order mark from a line."""
    return raw.strip().removeprefix(_BOM).strip()


def parse_line(raw: bytes, kind: type = RecordLine) -> ParsedLine:
    """Parse a line; raises ValueError with the reason if it is not valid."""
    text = strip_line(raw)
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has {len(text)} bytes; at most {MAX_BYTES} are read")
    claimed = text[-18:-2]
    if text[-_TAIL:-18] == _SUM and text[-2:] == b'"}' and _HEX.issuperset(claimed):
        made = hashlib.sha256(text[:-_TAIL] + b"}").hexdigest()[:16]
        return ParsedLine(_decode(text, kind), made, made.encode() != claimed)
    made = hashlib.sha256(text).hexdigest()[:16]
    return ParsedLine(_decode(text, kind), made, True)


def _decode(text: bytes, kind: type) -> Any:
    try:
        line = _decoders[kind].decode(text)
    except msgspec.ValidationError as error:
        if "unknown field" not in str(error):
            raise ValueError(str(error)) from None
        line = _decode_unknown_fields(text, kind)
    except _DAMAGE as error:
        raise ValueError(f"it is not JSON: {error}") from None
    check_line(line)
    return line


def _decode_unknown_fields(text: bytes, kind: type) -> Any:
    """Decode a line with fields of a newer dgent; of a record line they go to `extra`."""
    try:
        whole: dict[str, Any] = msgspec.json.decode(text)
        known = {field.name for field in msgspec.structs.fields(kind)}
        strange = {name: value for name, value in whole.items() if name not in known}
        rest = {name: value for name, value in whole.items() if name in known}
        if kind is RecordLine:
            rest["extra"] = {**(rest.get("extra") or {}), **strange}
        return _decoders[kind].decode(_encode(rest))
    except (TypeError, *_DAMAGE) as error:
        raise ValueError(str(error)) from None


def previous_sums(line: RecordLine) -> tuple[str, ...]:
    """Return the sums of the lines that a line replaces."""
    if line.prev is None:
        return ()
    return (line.prev,) if isinstance(line.prev, str) else tuple(line.prev)
