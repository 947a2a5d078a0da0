"""A store's knowledge of its schemas, and the indexes that a record is in.

An index (`ix` in the tables) is a sorted run of `(key, created_at, record_key)`. These are all indexes of a
store:

    (schema)              all records of a schema, by time
    (schema, tag)         the ones with a tag, by time
    (schema, @author)     by author, then time, where it is not the schema's usual author
    (schema, @source)     by source, where one is set
    (schema, @expires)    by the time when they expire, where one is set
    (@parent)             over all schemas: by the record that caused it
    (schema, @ref)        by the ids that its declared refs hold
    (schema, path)        by a declared field; by each item of a list, for a path that ends with `*`

A query for several of them walks one and looks each entry up in the others (`IndexScan.others`).

Field indexes describe records in the shape of the schema's newest registered version. A field whose
texts stand for decimals, durations or times has an index of that kind, in the order of those values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec

from dgent import codec
from dgent.errors import Corrupt, Denied, SchemaError
from dgent.model import order, reserved
from dgent.model import path as paths
from dgent.model.contract.scalar import Kind, value_of
from dgent.model.vector import VectorSpec
from dgent.search.words import TOKENIZER
from dgent.store.backend import Declaration, View

AUTHOR, SOURCE, PARENT, REF, TEXT, VECTOR = "@author", "@source", "@parent", "@ref", "@text", "@vector"
EXPIRES = "@expires"
UNLISTED = order.key(paths.MISSING)  # the key of a record in an index of items, where the value is not a list
KEYS = 1  # before, an older program's records could get keys in the shape of its own version
EMPTY = b""  # the `field_keys` of a row that is in no field index

Position = tuple[bytes, int, int]
Entry = tuple[int, bytes, int, int]
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
TailRecord = tuple[_Int, _Int, list[_Int], list[bytes], list[_Int], list[bytes]]
"""A record's time and key, the indexes and keys of its new entries, and those of removed ones."""

T_MIN, T_MAX = -(2**63), 2**63 - 1

_msgpack_keys = msgspec.msgpack.Decoder(dict[str, list[bytes]])


class IndexName(NamedTuple):
    """The name of an index: schema number (0: all), index version (0: none), tag, and path or @field."""

    schema: int
    index_version: int
    tag: str
    path: str


class SchemaState(msgspec.Struct, frozen=True):
    """A schema as the store knows it."""

    name: str
    number: int
    index_version: int = msgspec.field(default=0, name="iv")
    """The schema version whose shape the indexes describe; stores have it as `iv`."""
    paths: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    history: str | int = "all"
    feed: bool = True
    owner: str | None = None
    digest: str = ""
    ready: frozenset[str] = frozenset()
    seen: frozenset[int] = frozenset()
    fill: tuple[int, int] | None = None  # how far old records are indexed: (created_at, record_key)
    stale: bool = False  # indexes that are no longer declared wait to be removed
    kinds: dict[str, Kind] = {}  # what the texts at a declared field stand for
    keys: int = 0  # which way of making keys built the indexes
    text: tuple[tuple[str, int], ...] = ()  # the fields that are searched for words, with their weights
    tokenizer: str = ""  # how their texts are split into words
    dates: str = ""  # the time that is searched by its words too, as in a Declaration
    thread: str = ""  # the path of what names a conversation
    replaced: frozenset[str] = frozenset()  # texts and dates that this version had before, as `spell_texts`
    vector: VectorSpec | None = None  # the vectors of its records
    expires: bool = False  # some of its records have, or had, a time when they expire
    usual_author: int | None = None  # whose records have no entry by author; None: every record has one

    @property
    def building(self) -> tuple[str, ...]:
        """The declared fields that old records are not all indexed by."""
        return tuple(name for name in self.indexed if name not in self.ready)

    def has_shape(self, version: int | None) -> bool:
        """Return whether records of a version have the shape of the indexes; all have if it is undeclared."""
        return not self.index_version or version == self.index_version

    def is_known_to(self, view: View) -> bool:
        """Return whether a caller can tell the shape of all records: it knows the version of the indexes."""
        return self.has_shape(view.version(self.name))

    @property
    def indexed(self) -> tuple[str, ...]:
        """The declared fields, and what stands for refs, texts and vectors if there are any."""
        parts = (REF, self.refs), (TEXT, self.text), (VECTOR, self.vector)
        return (*self.paths, *(name for name, declared in parts if declared))


_states = msgspec.json.Decoder(SchemaState)


def state_of(raw: bytes) -> SchemaState:
    """Return a schema from its stored declaration."""
    try:
        return _states.decode(raw)
    except (msgspec.DecodeError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"a stored schema declaration is damaged: {error}") from None


def add_seen(state: SchemaState, version: int, author: int) -> SchemaState:
    """Return the state of a schema with a record of a version; who writes the first is its usual author."""
    usual = state.usual_author if state.seen else author
    return msgspec.structs.replace(state, seen=state.seen | {version}, usual_author=usual)


def require_state(state: SchemaState | None) -> SchemaState:
    """Return the state of a stored row's schema; Corrupt when the store does not know it."""
    if state is None:
        raise Corrupt("a stored row is of a schema that the store does not know", hint="restore a backup")
    return state


class Catalog:
    """Cached names, indexes and schemas of a store.

    The cache must fit the moment that is read, so readers of different moments do not share one.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.clear()

    def clear(self) -> None:
        """Drop entries that may have changed."""
        self.generation += 1
        self.version = -1
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.indexes: dict[IndexName, int] = {}
        self.states: dict[str, SchemaState] = {}
        self.floor = 0
        self.floor_at = 0
        self.forgot = 0
        self.salt = b""

    def hash(self, id: str) -> bytes:
        """Return the hash that is kept of a forgotten id."""
        return codec.blake2b(id.encode(), key=self.salt, size=20).digest()

    def seq_at(self, at: int, newest: int, time_by: Callable[[int], int | None]) -> int:
        """Return the newest seq committed at or before a time.

        `time_by` gives the time of the last commit up to a seq, or None when none of them is left.
        """
        if at < self.floor_at:
            return self.floor - 1
        first, last = self.floor, newest
        while first < last:
            middle = (first + last + 1) // 2
            time = time_by(middle)
            if time is None or time <= at:
                first = middle
            else:
                last = middle - 1
        return first

    def copy(self) -> Catalog:
        """Return another catalog with the same entries, which may learn what this one must not."""
        other = Catalog()
        other.__dict__.update(self.__dict__)
        other.numbers, other.names = dict(self.numbers), dict(self.names)
        other.indexes, other.states = dict(self.indexes), dict(self.states)
        return other


_Indexed = tuple[tuple[str, ...], tuple[str, ...], dict[str, Kind], frozenset[str]]


def apply_declaration(state: SchemaState, wanted: Declaration, empty: bool) -> SchemaState:
    """Return the state after a declaration; the same object when nothing changes.

    Declarations of one version add up. An older version than the newest known changes nothing. An
    owner stays: a declaration that does not name the schema's room must not open it to everyone.
    """
    owner = state.owner or reserved.OWNERS.get(state.name)
    if wanted.owner is not None and owner is not None and wanted.owner != owner:
        raise Denied(f"{state.name!r} belongs to the room {owner!r}, not to {wanted.owner!r}")
    if wanted.version < state.index_version:
        return state
    if wanted.version > state.index_version:
        fields, refs, kinds, ready = wanted.indexes, wanted.refs, wanted.kinds, frozenset[str]()
    else:
        fields, refs, kinds, ready = _add_up(state, wanted)
    # All that is said of texts goes together: a program that declares none leaves them as they are.
    newer = wanted.version > state.index_version
    of_texts = wanted if newer or (wanted.text and not returns_to_texts(state, wanted)) else state
    texts = _texts(of_texts)
    replaced = frozenset[str]() if newer else state.replaced
    if texts != _texts(state):
        ready -= {TEXT}
        if state.text and not newer:
            replaced |= {spell_texts(state)}
    vector = _join_vectors(state, wanted)
    if vector != state.vector:
        ready -= {VECTOR}
    new = msgspec.structs.replace(
        state,
        index_version=wanted.version,
        paths=fields,
        refs=refs,
        ready=ready,
        history=wanted.history,
        feed=wanted.feed,
        owner=state.owner if wanted.owner is None else wanted.owner,
        digest=wanted.digest,
        stale=state.stale
        or (
            (state.index_version != 0 or bool(state.text))
            and not empty
            and (state.index_version, state.kinds, _texts(state), state.vector)
            != (wanted.version, kinds, texts, vector)
        ),
        kinds=kinds,
        keys=KEYS,
        vector=vector,
        **texts,
        thread=of_texts.thread,
        replaced=replaced - {spell_texts(of_texts)},
    )
    if empty:
        new = msgspec.structs.replace(new, ready=frozenset(new.indexed))
    if new.building and _indexing(new) != _indexing(state):
        new = msgspec.structs.replace(new, fill=(T_MIN, 0))
    return new


ALL_TEXTS: dict[str, Any] = {"text": ((paths.EVERY, 1),), "tokenizer": TOKENIZER, "dates": ""}
UNSTORED = -1  # the number of a schema of which nothing is stored


def find_texts(state: SchemaState) -> SchemaState:
    """Return a schema with the texts that are searched: all of them, where nobody declared it.

    That is another state than the stored one until `fill` stores it, which begins the index.
    """
    known = state.index_version or state.owner or reserved.is_reserved(state.name)
    if known or state.name in reserved.PARTS or _texts(state) == ALL_TEXTS:
        return state
    return msgspec.structs.replace(
        state, **ALL_TEXTS, ready=state.ready - {TEXT}, fill=(T_MIN, 0), stale=state.stale or bool(state.text)
    )


def renew_texts(state: SchemaState) -> SchemaState:
    """Return a schema whose texts are to be indexed anew, if another way of it made its index.

    As for `find_texts`, that is another state than the stored one until `fill` stores it.
    """
    if not state.text or state.tokenizer == TOKENIZER:
        return state
    left = state.ready - {TEXT}
    return msgspec.structs.replace(state, tokenizer=TOKENIZER, ready=left, fill=(T_MIN, 0), stale=True)


def spell_texts(declared: SchemaState | Declaration) -> str:
    """Return the searched texts of a schema, and its dates, as one text."""
    return _spell(declared.text, declared.dates)


def _spell(text: tuple[tuple[str, int], ...], dates: str) -> str:
    return ",".join([*(f"{path}*{weight}" for path, weight in text), *filter(None, (dates,))])


def returns_to_texts(state: SchemaState, wanted: Declaration) -> bool:
    """Return whether a declaration has texts that another program has replaced in the same version.

    If those counted, two programs that disagree would have all records indexed anew in turn.
    """
    return wanted.version == state.index_version and spell_texts(wanted) in state.replaced


def _texts(declared: SchemaState | Declaration) -> dict[str, Any]:
    """Return the facts that decide the words of a record."""
    return {"text": declared.text, "tokenizer": declared.tokenizer, "dates": declared.dates}


def _join_vectors(state: SchemaState, wanted: Declaration) -> VectorSpec | None:
    """Return the vectors that a schema has after a declaration; those that records hold never change."""
    known, new = state.vector, wanted.vector
    if new is None:
        if known is None or not known.model or wanted.version == state.index_version:
            return known
        return known if wanted.embed == known.fields else None
    if known is not None and known != new and not (known.model and new.model):
        raise SchemaError(
            f"{state.name!r} has vectors of {known.describe()}; declared are {new.describe()}",
            hint="use another name for other vectors",
            field="dim" if known.dim != new.dim else "metric",
        )
    return new


def _add_up(state: SchemaState, wanted: Declaration) -> _Indexed:
    """Return the indexes of two declarations of one version, and those of them that are complete."""
    fields = state.paths + tuple(p for p in wanted.indexes if p not in state.paths)
    refs = state.refs + tuple(p for p in wanted.refs if p not in state.refs)
    kinds = {p: kind for p, kind in {**wanted.kinds, **state.kinds}.items() if p in fields}
    if state.keys < KEYS and not state.seen <= {state.index_version}:
        return fields, refs, kinds, frozenset()
    ready = state.ready if refs == state.refs else state.ready - {REF}
    return fields, refs, kinds, ready - {p for p in fields if state.kinds.get(p) != kinds.get(p)}


def _indexing(state: SchemaState) -> tuple[Any, ...]:
    """Return the facts that decide the index entries of a schema's records."""
    derived = *_texts(state).values(), state.vector
    return state.paths, state.refs, state.index_version, state.kinds, state.keys, *derived


def field_index(state: SchemaState, path: str) -> IndexName:
    """Return the index of a declared field."""
    kind = state.kinds.get(path)
    return IndexName(state.number, state.index_version, "", f".{path}" if kind is None else f"={kind}.{path}")


def text_index(state: SchemaState) -> IndexName:
    """Return the index of the versions that wait for the text index; its number is that of the text index."""
    # Only indexes that follow from the rows have version 0, so that of a schema nobody declared has 1.
    return _name_texts(state.number, state.index_version or 1, state.tokenizer, state.text, state.dates)


@lru_cache(maxsize=256)
def _name_texts(
    number: int, version: int, tokenizer: str, text: tuple[tuple[str, int], ...], dates: str
) -> IndexName:
    # Every put asks for it.
    return IndexName(number, version, "", f"{TEXT}:{tokenizer}:{_spell(text, dates)}")


def vector_index(state: SchemaState) -> IndexName:
    """Return the index of the versions that wait for the vector index, which has its number."""
    spec = state.vector
    assert spec is not None, "only a schema with vectors has an index of them"
    made = f":{spec.model}:{','.join(spec.fields)}" if spec.model else ""
    # What a model made of the same texts is good in every version of the schema.
    version = 1 if spec.model else state.index_version
    return IndexName(state.number, version, "", f"{VECTOR}:{spec.dim}:{spec.metric}{made}")


def derived_indexes(state: SchemaState) -> list[IndexName]:
    """Return the indexes that versions of a schema wait for: those of its texts and of its vectors."""
    texts = [text_index(state)] if state.text else []
    return texts if state.vector is None else [*texts, vector_index(state)]


_DROPPED = " dropped "


def is_derived(name: IndexName) -> bool:
    """Return whether the entries of an index are versions that wait, which do not follow from the rows."""
    return name.path.startswith((TEXT, VECTOR))


def waiting_key(rev: int, created_at: int) -> bytes:
    """Return the key under which a version waits for an index of texts or vectors.

    It holds the time too: a record that is made anew has another one, and its entry must be found.
    """
    return rev.to_bytes(8, "big") + (created_at - T_MIN).to_bytes(8, "big")


def waiting_entry(index: int, rev: int, created_at: int, record_key: int) -> Entry:
    """Return the entry of a version that waits for an index of texts or vectors."""
    return index, waiting_key(rev, created_at), created_at, record_key


def find_waiting_entry(index: int, key: bytes, record_key: int) -> Entry:
    """Return the entry of a version that waits, from its key."""
    return index, key, int.from_bytes(key[8:], "big") + T_MIN, record_key


def is_declared(state: SchemaState, name: IndexName) -> bool:
    """Return whether an index of a schema is among its present declarations."""
    if name.index_version == 0 or name.path == REF:
        return name.index_version in (0, state.index_version)
    if is_derived(name):
        return name in derived_indexes(state)
    return any(name == field_index(state, path) for path in state.paths)


def name_dropped(name: IndexName, index: int) -> IndexName:
    """Return the name of an index of texts or vectors while it is dropped in steps.

    If it were declared again meanwhile, it would lack what is dropped already; under its name another begins.
    """
    path, _, _ = name.path.partition(_DROPPED)
    return name._replace(path=f"{path}{_DROPPED}{index}")


def is_unsettled(state: SchemaState, name: IndexName) -> bool:
    """Return whether an index may have other entries than the rows say: it waits, is built or dropped."""
    if name.index_version == 0:
        return False
    return is_derived(name) or state.fill is not None or (state.stale and not is_declared(state, name))


FieldKeys = dict[str, list[bytes]]


def derive_keys(state: SchemaState, data: Mapping[str, Any]) -> FieldKeys:
    """Return the index keys of a record in the shape of the index."""
    kinds = state.kinds
    keys = {p: _keys(data, p, kinds.get(p)) for p in state.paths}
    if state.refs:
        # Whole, because a row carries them as what its refs hold; an entry takes the beginning.
        keys[REF] = [order.key(id) for id in ref_ids(state, data)]
    return keys


def keys_at(state: SchemaState, path: str, data: Mapping[str, Any]) -> list[bytes]:
    """Return the index keys of a record at one declared field."""
    return _keys(data, path, state.kinds.get(path))


def _keys(data: Mapping[str, Any], path: str, kind: Kind | None) -> list[bytes]:
    inside = paths.list_path(path)
    if inside is None:
        # The same as `index_key`, in place: this runs for each index of each record.
        value = paths.read(data, paths.parse(path))
        return [order.index_key(value)[0] if kind is None else _key(value, kind)]
    found = paths.read(data, inside)
    if isinstance(found, list):
        return sorted({_key(item, kind) for item in found})
    # `$contains` also looks into texts and maps: these stand where no item does, and are looked at.
    return [UNLISTED] if isinstance(found, str | dict) else []


def index_key(data: Mapping[str, Any], path: paths.Path, kind: Kind | None) -> bytes:
    """Return the key of a record in the index of a field."""
    value = paths.read(data, path)
    return order.index_key(value)[0] if kind is None else _key(value, kind)


def _key(value: Any, kind: Kind | None) -> bytes:
    return order.index_key(value if kind is None else value_of(kind, value))[0]


def ref_ids(state: SchemaState, data: Mapping[str, Any]) -> list[str]:
    """Return the ids that a record's declared refs hold."""
    found: dict[str, None] = {}
    for ref in state.refs:
        for item in paths.every(data, paths.parse(ref)):
            if isinstance(item, str):
                found[item] = None
    return list(found)


def pack_keys(keys: FieldKeys) -> bytes:
    """Return index keys as the row carries them when its own data cannot give them."""
    return msgspec.msgpack.encode(keys)


def unpack_keys(raw: bytes) -> FieldKeys:
    """Return the index keys a row carries."""
    return _msgpack_keys.decode(raw) if raw else {}


def number_key(number: int) -> bytes:
    """Return the key of an author or source; always exact."""
    return number.to_bytes(6, "big")


def low(key: bytes) -> Position:
    """Return the first position that can have a key."""
    return (key, T_MIN, T_MIN)


def high(key: bytes) -> Position:
    """Return the position after the last one that has a key."""
    return (key + b"\x00", T_MIN, T_MIN)


def after_text(prefix: str) -> str | None:
    """Return the smallest text, by code points, above all that start with a prefix; None if there is none."""
    trimmed = prefix.rstrip("\U0010ffff")
    if not trimmed:
        return None
    following = ord(trimmed[-1]) + 1
    return trimmed[:-1] + chr(0xE000 if following == 0xD800 else following)


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key above all that start with a prefix; None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None
