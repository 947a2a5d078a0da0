"""Rows as engines keep them, and the conversion from a datum to a row and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from dgent import clock, codec, ids
from dgent.errors import Corrupt, InputError
from dgent.model.datum import Blank, Datum
from dgent.store.engine import versions

MAX_RECORD_BYTES = 64 * 1024 * 1024
T_FIRST = clock.to_us(datetime(1, 1, 1, tzinfo=UTC))
T_LAST = clock.to_us(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))

DAMAGE = (Corrupt, msgspec.MsgspecError, TypeError, ValueError, RecursionError)
"""The errors that reading damaged bytes may raise."""

_UNREADABLE = b"\xff"  # stands for a body that does not unpack; it is not JSON
_tags_decoder = msgspec.json.Decoder(list[str])
_data_decoder = msgspec.json.Decoder(dict[str, Any])


class Row(NamedTuple):
    """One version of a record, in the columns of the tables. Names are numbers; times are microseconds."""

    record_key: int  # the record's number, in the order of first commits
    id: str
    rev: int
    seq: int
    live: int
    created_at: int  # when the record was made
    at: int  # when the version was committed
    schema: int
    schema_version: int  # the schema version of `data`
    author: int
    source: int | None
    parent: str | None
    tags: str  # a JSON list, sorted
    enc: int  # the encoding of `data` and `content`
    field_keys: bytes | None  # index keys not derivable from `data`; None: derive them
    extra: bytes | None  # `Datum.extra`, as JSON
    data: bytes | None
    content: bytes | None


class Brief(NamedTuple):
    """The columns of a live row that a reader needs; engines fetch pages of these as plain tuples.

    An engine may leave an id packed, and name tags by the number of their text.
    """

    record_key: int
    id: str | bytes
    rev: int
    seq: int
    created_at: int
    at: int
    schema: int
    schema_version: int
    author: int
    source: int | None
    parent: str | None
    tags: str | int
    extra: bytes | None
    data: bytes | None
    content: bytes | None


_COLUMNS = {"record_key": "dk", "created_at": "t", "schema_version": "sv", "field_keys": "fk", "extra": "x"}
"""The fields whose columns have shorter names in the tables."""


def columns_of(kind: type[Row] | type[Brief]) -> tuple[str, ...]:
    """Return the columns of the tables for the fields of a row, in their order."""
    return tuple(_COLUMNS.get(name, name) for name in kind._fields)


SCHEMA, SCHEMA_VERSION, AUTHOR, SOURCE, EXTRA, DATA = map(
    Brief._fields.index, ("schema", "schema_version", "author", "source", "extra", "data")
)


class SchemaRows(msgspec.Struct, frozen=True):
    """Rows of one schema as they were read; their datums are made on request.

    A caller that wants fifty values seldom looks at their envelopes.
    """

    schema: str
    rows: Sequence[tuple[Any, ...]]
    names: Mapping[int, str]

    def datum(self, row: tuple[Any, ...]) -> Datum:
        """Return the datum of one of the rows."""
        return datums_of((row,), self.names.__getitem__)[0]

    def datums(self) -> list[Datum]:
        """Return the datums of all the rows."""
        return datums_of(self.rows, self.names.__getitem__)


class EncodedDatum(msgspec.Struct, frozen=True, gc=False):
    """A datum encoded for writing, before it has numbers, rev and seq."""

    id: str
    created_at: int
    schema: str
    schema_version: int
    author: str
    source: str | None
    parent: str | None
    tags: str
    extra: bytes | None
    data: bytes
    content: bytes | None
    plain: dict[str, Any]  # `data` before encoding, for index keys
    tag_list: tuple[str, ...]


def encode_datum(datum: Datum, author: str, plain: bool = False, raw: bytes | None = None) -> EncodedDatum:
    """Check and encode a datum; everything that can be refused is refused here.

    `plain` says that data and tags were checked before and need no second look, `raw` that all of it was.
    """
    if raw is not None and len(raw) <= MAX_RECORD_BYTES:
        tags, text = tag_texts_of(datum.tags, True)
        name, version, by = datum.schema or "", datum.schema_version or 0, datum.author or author
        return EncodedDatum(
            datum.id, datum._us, name, version, by, None, None, text, None, raw, None, datum.data, tags
        )
    datum = datum.check_envelope()
    made, body = datum._created_at, datum._data
    assert made is not None and body is not None, "the check has looked at both"
    body = body if plain else codec.plain(body)
    tags, text = tag_texts_of(datum.tags, plain)
    created = clock.to_us(made)
    if not T_FIRST <= created <= T_LAST:
        # A zone may push it out; once stored, nobody could read it back.
        raise InputError("created_at is outside the years 1 to 9999 in UTC", field="created_at")
    extra, content = datum.extra, datum.content
    if extra is not None and not isinstance(extra, dict):
        raise InputError(f"extra must be a dict, not {type(extra).__name__}", field="extra")
    data = codec.encode(body)
    if len(data) + len(content) > MAX_RECORD_BYTES:
        raise InputError(
            f"the record {datum.id!r} is larger than {MAX_RECORD_BYTES} bytes",
            hint="keep large bytes in a blob and store its name",
        )
    return EncodedDatum(
        datum.id,
        created,
        datum.schema or "",
        datum.schema_version or 0,
        datum.author or author,
        datum.source,
        datum.parent_id,
        text,
        codec.encode(codec.plain(extra)) if extra else None,
        data,
        content or None,
        body,
        tags,
    )


_TagTexts = tuple[tuple[str, ...], str]
_tag_texts: dict[frozenset[str], _TagTexts] = {}
_TEXTS = frozenset((str,))


def tag_texts_of(tags: Any, plain: bool) -> _TagTexts:
    """Return tags sorted, and as the row has them; cached, because few sets serve many records."""
    known = _tag_texts.get(tags) if type(tags) is frozenset else None
    if known is not None and (plain or _TEXTS.issuperset(map(type, tags))):
        return known
    checked = frozenset(tags or ()) if plain else ids.check_tags(tags)
    text = codec.encode(sorted(checked)).decode()
    if len(_tag_texts) > 4096:
        _tag_texts.clear()
    known = _tag_texts[checked] = tuple(_tags_decoder.decode(text)), text
    return known


def tags_of(row: Row) -> tuple[str, ...]:
    """Return the tags of a row, sorted."""
    return () if row.tags == "[]" else tuple(_tags_decoder.decode(row.tags))


def data_of(row: Row) -> dict[str, Any]:
    """Return the data of a row whose body is plain; raises one of DAMAGE when it is damaged."""
    data: dict[str, Any] = _data_decoder.decode(row.data) if row.data else {}
    return data


T_MIN, T_MAX = clock.to_us(datetime.min.replace(tzinfo=UTC)), clock.to_us(datetime.max.replace(tzinfo=UTC))
_NO_TAGS: frozenset[str] = frozenset()
_make = object.__new__
_tag_sets: dict[str, frozenset[str]] = {"[]": _NO_TAGS}


def _tag_set(text: str) -> frozenset[str]:
    """Return the tags of a row's text; cached, because few sets of tags serve many records."""
    if len(_tag_sets) > 4096:
        _tag_sets.clear()
    found = _tag_sets[text] = frozenset(_tags_decoder.decode(text))
    return found


def datum_of(row: tuple[Any, ...], name: Callable[[int], str]) -> Datum:
    """Return the datum of a live row with a plain body; runs for every record read, so it unpacks in one go.

    A damaged row becomes a datum with a `problem`: one bad record must not hide the others.
    """
    (
        _,
        id,
        rev,
        seq,
        _,
        created,
        at,
        schema,
        version,
        author,
        source,
        parent,
        tags,
        _,
        _,
        extra,
        data,
        content,
    ) = row
    try:
        if type(id) is bytes:
            id = ids.unpack_id(id)
        if type(tags) is int:
            tags = name(tags)
        if type(id) is not str or type(created + at + rev + seq + version) is not int:
            raise Corrupt("its id or one of its numbers is of another kind")
        if not isinstance(parent, str | None) or not isinstance(content, bytes | None):
            raise Corrupt("its parent or its content is of another kind")
        if not T_MIN <= created <= T_MAX >= at >= T_MIN:
            raise Corrupt("one of its times is outside the years 1 to 9999")
        new = _make(Blank)
        new.id, new.rev, new.seq, new._us, new._at = id, rev, seq, created, at
        new._data, new.content = _data_decoder.decode(data) if data else {}, content or b""
        new.tags = _tag_sets[tags] if tags in _tag_sets else _tag_set(tags)
        new.author, new.source = name(author), None if source is None else name(source)
        new.parent_id, new.schema, new.schema_version = parent, name(schema) or None, version or None
        new._raw = new._created_at = new._updated_at = new.problem = None
        new.extra = None if extra is None else codec.decode(extra)
        new.__class__ = Datum
        return new  # type: ignore[return-value]
    except DAMAGE as error:
        return _salvage(Row._make(row), name, error)


def datums_of(
    rows: Iterable[tuple[Any, ...]], name: Callable[[int], str], at_hand: dict[int, str] | None = None
) -> list[Datum]:
    """Return the datums of brief rows, for a caller that decodes the data itself.

    The caller notices then if the data is damaged. Every record read in a page or by its id comes through
    here, so there are no calls in the plain case. Names that are not at hand are added there.
    """
    out: list[Any] = []
    names: dict[int, str] = {} if at_hand is None else at_hand
    for row in rows:
        _, id, rev, seq, created, at, schema, version, author, source, parent, tags, extra, raw, content = row
        try:
            if type(id) is bytes:
                id = ids.unpack_id(id)
            # One sum for all numbers: of anything else it is not a whole number, or a TypeError.
            sound = type(raw) is bytes and type(id) is str and type(created + at + rev + seq + version) is int
        except (TypeError, ValueError):
            sound = False
        if extra is not None or not sound or not T_MIN <= created <= T_MAX >= at >= T_MIN:
            out.append(datum_of(whole_of(row), name))
            continue
        new = _make(Blank)
        try:
            if type(tags) is int:
                if tags not in names:
                    names[tags] = name(tags)
                tags = names[tags]
            new.tags = _tag_sets[tags] if tags in _tag_sets else _tag_set(tags)
            if author not in names:
                names[author] = name(author)
            if schema not in names:
                names[schema] = name(schema)
            if source is not None:
                new.source = name(source)
        except DAMAGE:
            out.append(datum_of(whole_of(row), name))
            continue
        new.id, new.rev, new.seq, new._us, new._at, new._raw = id, rev, seq, created, at, raw
        new.author, new.schema, new.schema_version = names[author], names[schema] or None, version or None
        if parent is not None:
            new.parent_id = parent
        if content is not None:
            new.content = content
        new.__class__ = Datum
        out.append(new)
    return out


def rows_of(
    rows: Sequence[tuple[Any, ...]], name: Callable[[int], str], names: dict[int, str]
) -> SchemaRows | None:
    """Return brief rows as they are; None when something about them is odd and each needs a check.

    `names` gets the names of these rows; it must not lose them.
    """
    if not rows:
        return None
    first = rows[0][SCHEMA]
    try:
        for _, id, rev, seq, created, at, schema, version, author, source, _, tags, extra, _, _ in rows:
            if extra is not None or schema != first or not T_MIN <= created <= T_MAX >= at >= T_MIN:
                return None
            if type(created + at + rev + seq + version) is not int:
                return None
            if type(id) is not str and (type(id) is not bytes or len(id) != 16):
                return None
            if author not in names:
                names[author] = name(author)
            if source is not None and source not in names:
                names[source] = name(source)
            if type(tags) is int:
                if tags not in names:
                    names[tags] = name(tags)
                tags = names[tags]
            if tags not in _tag_sets:
                _tag_set(tags)
        if first not in names:
            names[first] = name(first)
    except DAMAGE:
        return None
    return SchemaRows(names[first], rows, names)


def brief_of(row: Row) -> Brief:
    """Return the columns of a live row that a reader needs."""
    return Brief._make((*row[:4], row.created_at, row.at, *row[7:13], *row[15:]))


def whole_of(brief: tuple[Any, ...]) -> Row:
    """Return a brief row in the layout of Row; no datum shows the columns that it lacks."""
    return Row._make((*brief[:4], 1, *brief[4:12], versions.PLAIN, None, *brief[12:]))


def _salvage(row: Row, name: Callable[[int], str], error: BaseException) -> Datum:
    """Return the readable rest of a damaged record, with the reason as its problem."""

    def read_or(read: Callable[[], Any], instead: Any) -> Any:
        try:
            return read()
        except DAMAGE:
            return instead

    def number(value: Any) -> int | None:
        return value if type(value) is int else None

    reason = error.message if isinstance(error, Corrupt) else error
    id = id_text(row.id)
    return Datum(
        id,
        read_or(lambda: clock.from_us(row.created_at), clock.EPOCH),
        read_or(lambda: _data_decoder.decode(row.data) if row.data else {}, {}),
        row.content if isinstance(row.content, bytes) else b"",
        read_or(lambda: frozenset(_tags_decoder.decode(tags_text(row.tags, name))), _NO_TAGS),
        read_or(lambda: name(row.author), None),
        read_or(lambda: None if row.source is None else name(row.source), None),
        row.parent if isinstance(row.parent, str) else None,
        read_or(lambda: name(row.schema) or None, None),
        number(row.schema_version) or None,
        number(row.rev),
        number(row.seq),
        f"{id!r} is damaged: {reason}",
        None,
        read_or(lambda: clock.from_us(row.at), None),
    )


def tags_text(tags: str | int, name: Callable[[int], str]) -> str:
    """Return the text of tags that may be named by its number."""
    return name(tags) if isinstance(tags, int) else tags


def id_text(value: Any) -> str:
    """Return an id as text; of one that is damaged too: nobody can ask for it, but reports can name it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes) and len(value) == 16:
        return ids.unpack_id(value)
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def pack_row(row: Row, newer: Row) -> Row:
    """Return the row as history keeps it: small, given the version that replaces it."""
    if not isinstance(row.data, bytes | None) or not isinstance(row.content, bytes | None):
        return row  # damaged, and kept as it is
    enc, data, content = versions.pack(row.rev, row.data, row.content, newer.data, newer.content)
    return row._replace(enc=enc, data=data, content=content)


def unpack_row(row: Row, newer: Callable[[], Row]) -> Row:
    """Return the row with a plain body; `newer` gives the next version, plain, if it is needed."""
    if row.enc == versions.PLAIN:
        return row
    try:
        if row.enc == versions.DELTA:
            base = newer()
            data, content = versions.unpack(row.enc, row.data, row.content, base.data, base.content)
        else:
            data, content = versions.unpack(row.enc, row.data, row.content, None, None)
    except DAMAGE:
        data, content = _UNREADABLE, None
    return row._replace(enc=versions.PLAIN, data=data, content=content)
