"""The schemas a universe knows, and the way from stored records to typed values."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from dgent.errors import (
    Corrupt,
    InputError,
    NewerRecord,
    NotFound,
    SchemaConflict,
    SchemaError,
    Unreadable,
    UnreadableRecord,
)
from dgent.model import path, reserved
from dgent.model.contract.lookup import Lookup
from dgent.model.contract.node import spell
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.model.vector import VectorSpec
from dgent.search.record import CREATED
from dgent.search.words import TOKENIZER
from dgent.store.backend import AsOf, Declaration, Page, Shaped
from dgent.store.engine.row import DATA, SCHEMA_VERSION
from dgent.system.near import ask, find_near

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

T = TypeVar("T")


class Recalled(list[Crystal[T]]):
    """Crystals that match a query; `problems` are the matching records that cannot be read as values.

    Each problem is a raw datum with its `problem`. A record that lacks a field of the condition is among
    them if it could match with that field. Records of unregistered schemas are in neither.
    """

    problems: list[Datum]


def _read_marks(datum: Datum) -> Datum:
    """Return a record that names its schema inside its data, as `_schema` and `_version`, as one of it."""
    try:
        match datum.data:
            case {"_schema": str(name), "_version": int(version), **rest} if name and version >= 1:
                return datum.replace(schema=name, schema_version=version, data=rest)
    except Corrupt:
        pass  # it comes back as it is
    return datum


class Contracts:
    """Registered schemas by name and by type, and the caller's view of stored records."""

    lazy = True  # values are made from the stored bytes; a page needs no dicts for that

    def __init__(self) -> None:
        self._by_name: dict[str, Schema[Any]] = {}
        self._by_class: dict[type, list[Schema[Any]]] = {}
        self.lifetimes: dict[str, timedelta] = {}  # of the schemas whose records expire
        self.refreshed: dict[str, timedelta] = {}  # of those whose records live on when they are read
        self._warned: set[tuple[str | None, int | None]] = set()

    def add(self, schema: Schema[Any]) -> bool:
        """Register a schema; False when this very schema is registered already."""
        if not isinstance(schema, Schema):
            raise SchemaError(f"register takes a Schema, not {type(schema).__name__}")
        known = self._by_name.get(schema.name)
        if known is schema:
            return False
        if known is not None and known.version == schema.version and known.digest != schema.digest:
            raise SchemaError(
                f"{schema.name} version {schema.version} is registered with another contract",
                hint="a changed contract needs a higher version and a migration",
            )
        others = [each for each in self._by_class.get(schema.shape.made, ()) if each is not known]
        for other in others:
            if other.contract == schema.contract:
                raise SchemaError(
                    f"{spell(schema.contract)} is the contract of {other.name!r} already",
                    hint="give each schema its own contract class",
                )
        if known is not None and known.contract is not None:
            self._by_class[known.shape.made].remove(known)
        if schema.contract is not None:
            self._by_class[schema.shape.made] = [*others, schema]
        self._by_name[schema.name] = schema
        self.lifetimes.pop(schema.name, None)
        self.refreshed.pop(schema.name, None)
        if schema.lifetime is not None:
            self.lifetimes[schema.name] = schema.lifetime
            if schema.refresh_on_read:
                self.refreshed[schema.name] = schema.lifetime
        return True

    def by_name(self, name: str | None) -> Schema[Any] | None:
        """Return the schema of a name, if it is registered."""
        return None if name is None else self._by_name.get(name)

    def of_type(self, kind: type[T]) -> Schema[T]:
        """Return the schema of a contract type; InputError when values of this class are of several."""
        made = kind if type(kind) is type else get_origin(kind) or kind
        if not isinstance(made, type):
            raise InputError(f"a contract is a class, not {kind!r}", field="contract")
        known = self._by_class.get(made, ())
        if len(known) == 1 and made is kind:
            return known[0]
        for schema in known:
            if schema.contract == kind:
                return schema
        if known and made is kind:
            names = ", ".join(f"{schema.name!r} ({spell(schema.contract)})" for schema in known)
            raise InputError(
                f"a {made.__name__} can be of several schemas: {names}",
                hint=f"name the one you mean, as in schema={known[0].name!r}",
                field="schema",
            )
        raise NotFound(
            f"no schema is registered for {spell(kind)}", hint="call u.register(Schema(...)) first"
        )

    def only_of(self, kind: type) -> Schema[Any] | None:
        """Return the schema whose contract is a class; None if there is none, or more than one."""
        known = self._by_class.get(kind)
        return known[0] if known is not None and len(known) == 1 else None

    def find(self, named: str | type[T] | Schema[T]) -> Schema[Any]:
        """Return the registered schema of a name or a contract type, or a registered schema itself."""
        if not isinstance(named, str | Schema):
            return self.of_type(named)
        schema = self.by_name(named if isinstance(named, str) else named.name)
        if schema is None or (isinstance(named, Schema) and named is not schema):
            which = repr(named) if isinstance(named, str) else f"of this contract named {named.name!r}"
            raise NotFound(f"no schema {which} is registered here", hint="call u.register(Schema(...)) first")
        return schema

    def match_name(self, text: str) -> str | None:
        """Return the name of the schema that a text names; None if it is words. NotFound for a slip."""
        if text in self._by_name:
            return text
        near = ask(map(repr, find_near(text, self._by_name, 3, 0.85)))
        if near:
            raise NotFound(
                f"no schema {text!r} is registered here", hint=f"{near} `u.search({text!r})` looks for words"
            )
        return None

    def is_foreign(self, datum: Datum, room: str | None) -> bool:
        """Return whether a record has an id that is a room's by itself, and is not of the asking room."""
        if room is None or not reserved.may_be_of_room(datum.id):
            return False
        schema = self.by_name(datum.schema)
        return (reserved.OWNERS.get(datum.schema or "") if schema is None else schema.owner) != room

    def all(self) -> list[Schema[Any]]:
        """Return every registered schema."""
        return list(self._by_name.values())

    # -- the view that engines match with -------------------------------------------------

    def version(self, schema: str) -> int | None:
        """Return the version of a schema that this program knows."""
        known = self._by_name.get(schema)
        return None if known is None else known.version

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """Return the data to match: in this program's version if possible, else as stored."""
        schema = self.by_name(datum.schema)
        if schema is None or datum.problem is not None:
            return datum.data
        if datum.schema_version in (None, schema.version):
            return schema.shape.lookup.see(datum.data)
        found = self.upgrade(datum)
        if found is None:
            self._note_unreadable(datum)
            return datum.data
        return schema.shape.lookup.see(found)

    def _note_unreadable(self, datum: Datum) -> None:
        """Take note that a record is matched as it is stored."""

    def upgrade(self, datum: Datum) -> dict[str, Any] | None:
        """Return data of another version in this program's; None when no steps lead there."""
        schema = self.by_name(datum.schema)
        if schema is None or datum.problem is not None:
            return None
        try:
            return schema.shape_of(datum.data, datum.schema_version or schema.version)
        except (Unreadable, NewerRecord):
            return None

    def lookup(self, schema: str) -> Lookup | None:
        """Return this program's contract of a schema, as queries use it."""
        known = self._by_name.get(schema)
        return None if known is None else known.shape.lookup

    def check(self, query: Query) -> Query:
        """Return the query; QueryError when it asks for anything that its schema's contract does not have."""
        if query.where is None and query.order_path is None:
            return query
        schema = self.by_name(query.schema)
        if schema is not None and query.__dict__.get("_fits") is not schema:
            schema.shape.lookup.check(query.filter.parts, query.order_path)
            query.__dict__["_fits"] = schema  # a query is often asked again
        return query

    def index_shape(self, datum: Datum) -> Shaped | None:
        """Return the data in this program's version, for an old record that is stored as it is."""
        schema = self.by_name(datum.schema)
        if schema is None or not (schema.indexes or schema.ref_paths):
            return None
        found = self.upgrade(datum)
        return None if found is None else Shaped(schema.version, found)

    # -- from records to values -----------------------------------------------------------

    def crystal(self, datum: Datum) -> Crystal[Any] | Datum:
        """Return the typed value, or the datum when its schema is unknown or newer; may raise Unreadable."""
        schema = self.by_name(datum.schema)
        if schema is None and datum.schema is None:
            datum = _read_marks(datum)
            schema = self.by_name(datum.schema)
        if schema is None or datum.problem is not None:
            return whole(datum)
        try:
            return Crystal.from_datum(datum, schema)
        except NewerRecord as newer:
            return datum.replace(problem=str(newer))
        except Corrupt:
            return whole(datum)

    def lenient(self, datum: Datum) -> Crystal[Any] | Datum:
        """Return the crystal like `crystal`; a record that cannot be read comes back raw with the reason."""
        try:
            return self.crystal(datum)
        except Unreadable as error:
            return datum.replace(problem=str(error))
        except Corrupt as error:
            return datum.replace(data={}, problem=error.message)

    def lenient_all(self, page: Page) -> list[Any]:
        """Apply `lenient` to each; records in this program's version are decoded straight from their rows."""
        if page.rows is None:
            return [self.lenient(datum) for datum in page.items]
        schema, make = self.by_name(page.rows.schema), page.rows.datum
        quick = None if schema is None else schema.shape.quick
        if schema is None or quick is None:
            return [self.lenient(datum) for datum in page.rows.datums()]
        name, version = schema.name, schema.version
        out: list[Any] = []
        for row in page.rows.rows:
            if row[SCHEMA_VERSION] == version:
                try:
                    out.append(Crystal(row, quick(row[DATA]), name, version, make))
                    continue
                except Exception:
                    pass  # the problem is reported below
            out.append(self.lenient(make(row)))
        return out

    def pick_crystals(self, found: Iterable[Any]) -> Recalled[Any]:
        """Return the crystals among some records; warns of the first of each version that is left out."""
        out: Recalled[Any] = Recalled()
        out.problems = []
        for each in found:
            if type(each) is Crystal:
                out.append(each)
            elif each.problem is not None:
                out.problems.append(each)
        for datum in out.problems:
            version = datum.schema, datum.schema_version
            if version not in self._warned:
                self._warned.add(version)
                warnings.warn(
                    f"recall leaves out records of {datum.schema} version {datum.schema_version} that cannot"
                    f" be read, first {datum.id!r}: {datum.problem} (the answer's .problems has them)",
                    UnreadableRecord,
                    stacklevel=3,
                )
        return out


class Doubts(Contracts):
    """The contracts as one query uses them, with the records that the query cannot judge.

    They cannot be upgraded and lack a field that the query names; at most as many as its limit are noted.
    """

    def __init__(self, contracts: Contracts, query: Query) -> None:
        self._by_name, self._query = contracts._by_name, query  # a view needs no more of them
        self.ids: dict[str, None] = {}

    def _note_unreadable(self, datum: Datum) -> None:
        full = self._query.limit is not None and len(self.ids) >= self._query.limit
        if not full and self._query.may_match(datum):
            self.ids[datum.id] = None

    async def load(self, universe: Universe, as_of: AsOf, partial: bool) -> list[Datum]:
        """Load the records in doubt; by their ids, so that the gate judges them too."""
        some = await universe.get_many(list(self.ids), as_of=as_of, partial=partial) if self.ids else []
        return [each for each in some if isinstance(each, Datum)]


def whole(datum: Datum) -> Datum:
    """Return the datum with its data decoded; raises Corrupt naming it."""
    try:
        datum.data  # noqa: B018 - decoded on first use
    except Corrupt as error:
        raise Corrupt(f"{datum.id!r} is damaged: {error.message}", id=datum.id) from None
    return datum


def raw_of(datum: Datum) -> Datum:
    """Return the datum with its data decoded; a damaged one with its problem."""
    try:
        return whole(datum)
    except Corrupt as error:
        return datum.replace(data={}, problem=error.message)


def declaration(schema: Schema[Any], vector: VectorSpec | None = None) -> Declaration:
    """Return the declaration of a schema that a store needs; `vector` if an embedder makes vectors of it."""
    return Declaration(
        schema.name,
        schema.version,
        schema.indexes,
        schema.ref_paths,
        schema.history,
        schema.feed,
        schema.owner,
        schema.digest,
        {p: kind for p in schema.indexes if (kind := schema.shape.lookup.kind(path.parse(p))) is not None},
        tuple(schema.text.items()),
        TOKENIZER if schema.text else "",
        date_source(schema),
        schema.thread or "",
        schema.vector or vector,
        schema.embed,
    )


def date_source(schema: Schema[Any]) -> str:
    """Return the time of a schema's records that is searched by its words, as a declaration names it."""
    if schema.dates is True:
        return CREATED
    return f".{schema.dates}" if schema.dates else ""


def warn_of_dispute(schema: Schema[Any]) -> None:
    """Warn that two programs have different contracts under one version."""
    warnings.warn(
        f"{schema.name} version {schema.version} was declared with another contract before; two programs"
        " disagree, and each may find the other's records unreadable. A changed contract needs a higher"
        " version.",
        SchemaConflict,
        stacklevel=5,
    )


def warn_of_texts(schema: Schema[Any]) -> None:
    """Warn that another program has replaced the searched texts of a schema."""
    warnings.warn(
        f"{schema.name} version {schema.version} has its texts from another program, which replaced those"
        " that this one declares; a search goes by the others. To have these searched, raise the version.",
        SchemaConflict,
        stacklevel=5,
    )
