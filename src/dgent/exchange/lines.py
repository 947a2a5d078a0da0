"""The format of an export: encode, check and decode its lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO, Literal

import msgspec

from dgent import clock
from dgent.errors import Corrupt, DgentError, FormatTooNew, InputError
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.engine.row import encode_datum
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped

FORMAT = 1
# A record of the greatest size a store takes fits, its content written as base64.
MAX_LINE_BYTES = 96 * 1024 * 1024
PART, PART_BYTES = 10_000, 8 * 1024 * 1024  # records and bytes that are read at a time
NAMED = 20  # wrong lines listed
NOTHING = "nothing was imported"


class _Header(msgspec.Struct, frozen=True):
    dgent: str
    format: int
    universe: str | None
    seq: int
    created_at: datetime


class _Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    end: Literal[True]
    records: int
    sha256: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One record. `rev`, `seq` and `updated_at` are of its source; the importing store assigns its own."""

    id: str
    created_at: datetime
    schema: str | None = None
    schema_version: int | None = None
    tags: list[str] = []
    author: str | None = None
    source: str | None = None
    parent_id: str | None = None
    data: dict[str, Any] = {}
    content: bytes = b""
    rev: int | None = None
    seq: int | None = None
    extra: dict[str, Any] | None = None
    updated_at: datetime | None = None


_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(_Record)
_footer = msgspec.json.Decoder(_Footer)
_DAMAGE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)


# -- writing ------------------------------------------------------------------------------


def encode_header(universe_id: str | None, seq: int) -> bytes:
    """Return the first line."""
    return _encode(_Header("export", FORMAT, universe_id, seq, clock.now()))


def encode_footer(records: int, sha256: str) -> bytes:
    """Return the last line."""
    return _encode(_Footer(True, records, sha256))


def encode_record(datum: Datum) -> bytes:
    """Return the line of a record; raises InputError if it is too long."""
    line = _encode(
        _Record(
            datum.id,
            datum.created_at,
            datum.schema,
            datum.schema_version,
            sorted(datum.tags),
            datum.author,
            datum.source,
            datum.parent_id,
            datum.data,
            datum.content,
            datum.rev,
            datum.seq,
            datum.extra,
            datum.updated_at,
        )
    )
    if len(line) > MAX_LINE_BYTES:
        raise InputError(f"{datum.id!r} needs a line of {len(line)} bytes; the limit is {MAX_LINE_BYTES}")
    return line


# -- reading ------------------------------------------------------------------------------


class CheckedFile(msgspec.Struct, frozen=True):
    """The result of the first pass over a valid file."""

    sha256: str
    records: int
    size: int
    schemas: dict[str, int]  # the first line that has each
    authors: dict[str, int]  # likewise


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, cut after the longest allowed length; the last may lack its newline."""
    file.seek(0)
    while line := file.readline(MAX_LINE_BYTES + 1):
        yield line


def check_file(file: BinaryIO, pace: ProgressReporter, stopped: Stopped) -> CheckedFile:
    """Check every line; raises Corrupt or InputError, naming the lines, if the file cannot be imported."""
    hashed, seen = hashlib.sha256(), set[bytes]()
    wrong: list[str] = []
    schemas: dict[str, int] = {}
    authors: dict[str, int] = {}
    found: _Footer | None = None
    size = number = 0
    for number, line in enumerate(_read_lines(file), 1):
        if stopped():
            raise Corrupt("the import was stopped")
        size += len(line)
        pace.at(size)
        if found is not None:
            raise Corrupt(f"line {number}: the file continues after its last line", hint=NOTHING)
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"line {number} is longer than {MAX_LINE_BYTES} bytes", hint=NOTHING)
        if not line.endswith(b"\n"):
            raise Corrupt(f"line {number} has no newline: the file was cut", hint=NOTHING)
        if number == 1:
            _check_header(line)
        elif line.startswith(b'{"end":'):
            found = _read_footer(line, number)
            continue
        else:
            problem = _find_problem(line, seen, schemas, authors, number)
            if problem is not None:
                wrong.append(f"line {number}: {problem}")
        hashed.update(line)
    if found is None:
        raise Corrupt(f"the file ends after line {number} without its last line", hint=NOTHING)
    whole = found.sha256 == hashed.hexdigest() and found.records == number - 2
    if wrong or not whole:
        raise _make_refusal(wrong, whole)
    return CheckedFile(found.sha256, found.records, size, schemas, authors)


def _make_refusal(wrong: list[str], whole: bool) -> DgentError:
    named = f": {'; '.join(wrong[:NAMED])}" if wrong else ""
    more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
    if whole:
        text = f"{len(wrong)} lines cannot be stored{named}{more}"
        return InputError(text, hint=NOTHING, lines=wrong[:NAMED])
    text = f"the file was changed since its export, its checksum differs{named}{more}"
    return Corrupt(text, hint=NOTHING, lines=wrong[:NAMED])


def _check_header(line: bytes) -> None:
    try:
        said: Any = msgspec.json.decode(line)
        if said["dgent"] != "export":
            raise ValueError
        number = said["format"]
        if type(number) is int and number > FORMAT:
            raise FormatTooNew(f"the export has format {number}; this dgent reads up to {FORMAT}")
        msgspec.convert(said, _Header)
    except (*_DAMAGE, LookupError, TypeError):
        raise InputError(
            "this is not an export of dgent", hint="an export begins with a header line"
        ) from None


def _read_footer(line: bytes, number: int) -> _Footer:
    try:
        return _footer.decode(line)
    except _DAMAGE:
        raise Corrupt(f"line {number}, the last one, is damaged", hint=NOTHING) from None


def _find_problem(
    line: bytes, seen: set[bytes], schemas: dict[str, int], authors: dict[str, int], number: int
) -> str | None:
    """Return why a line cannot be stored; None when it can."""
    try:
        datum = _decode_record(line)
        encode_datum(datum, "import")
    except DgentError as error:
        return error.message
    except _DAMAGE as error:
        return f"it is not a valid record: {error}"
    mark = hash_id(datum.id)
    if mark in seen:
        return f"the id {datum.id!r} occurs twice"
    seen.add(mark)
    if datum.schema is not None:
        schemas.setdefault(datum.schema, number)
    if datum.author is not None:
        authors.setdefault(datum.author, number)
    if reserved.is_own(datum.id, None) and not reserved.is_own("", datum.schema):
        return f"the id {datum.id!r} is among dgent's own"
    return None


def hash_id(id: str) -> bytes:
    """Return a short hash of an id, to find ids that occur twice in little memory."""
    return hashlib.blake2b(id.encode(), digest_size=16).digest()


def _decode_record(line: bytes) -> Datum:
    found = _record.decode(line)
    return Datum(
        found.id,
        found.created_at,
        found.data,
        found.content,
        frozenset(found.tags),
        found.author,
        found.source,
        found.parent_id,
        found.schema,
        found.schema_version,
        extra=found.extra,
    )


def read_parts(
    file: BinaryIO, checked: CheckedFile, whole: bool, pace: ProgressReporter
) -> Iterator[list[Datum]]:
    """Yield the records of a checked file in batches; raises Corrupt if it changed since the check."""
    hashed = hashlib.sha256()
    part: list[Datum] = []
    size = inside = 0
    for number, line in enumerate(_read_lines(file), 1):
        size += len(line)
        pace.at(checked.size + size)
        if number == checked.records + 2:
            break
        hashed.update(line)
        if number == 1:
            continue
        try:
            part.append(_decode_record(line))
        except _DAMAGE:
            raise _make_changed_error() from None
        inside += len(line)
        if not whole and (len(part) == PART or inside >= PART_BYTES):
            yield part
            part, inside = [], 0
    if size != checked.size or hashed.hexdigest() != checked.sha256:
        raise _make_changed_error()
    if part:
        yield part


def _make_changed_error() -> Corrupt:
    return Corrupt("the file changed while it was being imported", hint="import it again")
