"""The view of a caller without its contracts, as a server needs it to answer queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dgent import codec
from dgent.errors import Corrupt, InputError
from dgent.model.contract.lookup import Defaults, Lookup
from dgent.model.contract.scalar import Kind, value_of
from dgent.model.datum import Datum
from dgent.model.path import MISSING, Path, read, text
from dgent.model.query import Query
from dgent.model.where import Condition, Negated, Part
from dgent.store.backend import PartView, StoredView, View
from dgent.store.remote.errors import CannotSee
from dgent.store.remote.wire import SeenField, SeenSchema, WireView


def pack_view(view: View, queries: Iterable[Query]) -> WireView:
    """Return what a server has to know of a view to answer queries; Unsupported if that cannot be said."""
    part = None
    if isinstance(view, PartView):
        part = "gone" if view.gone else "kept"
    fields: dict[str, dict[Path, SeenField]] = {}
    for query in queries:
        paths = _paths_of(query)
        if not paths:
            continue  # data is not looked at
        for name in _schemas_of(view, query):
            if view.version(name) is None:
                continue
            seen = fields.setdefault(name, {})
            lookup = view.lookup(name)
            for path in () if lookup is None else paths:
                found = _field_of(lookup, name, path)
                if found is not None:
                    seen[path] = found
    schemas = [SeenSchema(name, view.version(name) or 1, [*seen.values()]) for name, seen in fields.items()]
    return WireView(schemas, {}, part)  # type: ignore[arg-type]


def pack_search_view(view: View, query: Query) -> WireView:
    """Return the same for a search, which also depends on which schemas the caller knows."""
    listed = getattr(view, "all", None)
    names = [query.schema or ""] if listed is None else [each.name for each in listed()]
    known = {name: version for name in names if (version := view.version(name)) is not None}
    return msgspec.structs.replace(pack_view(view, (query,)), known=known)


def pack_versions(view: View) -> WireView:
    """Return the versions of all schemas with references that a caller knows."""
    listed = getattr(view, "all", None)
    schemas = [] if listed is None else [each for each in listed() if each.ref_paths]
    return WireView([SeenSchema(each.name, each.version) for each in schemas])


def _schemas_of(view: View, query: Query) -> Iterable[str]:
    if query.schema is not None:
        return (query.schema,)
    if isinstance(view, StoredView):
        return ()
    listed = getattr(view, "all", None)
    if listed is None:
        raise CannotSee("a query of all schemas cannot be sent with this view", hint="name the schema")
    return [schema.name for schema in listed()]


def _paths_of(query: Query) -> set[Path]:
    found = set[Path]() if query.order_path is None else {query.order_path}
    parts: list[Part] = list(query.filter.parts)
    while parts:
        part = parts.pop()
        if isinstance(part, Condition):
            found.add(part.path)
        else:
            parts += (part.part,) if isinstance(part, Negated) else part.parts
    return found


def _field_of(lookup: Lookup | None, name: str, path: Path) -> SeenField | None:
    """Return what a contract says of a path; None if it is read as it is stored."""
    assert lookup is not None
    found = lookup.outline(path)
    if found is None:
        raise CannotSee(f"{name} fills in defaults below {text(path)}, which a server does not know")
    kind, defaults = found
    if kind is None and not defaults:
        return None
    return SeenField(list(path), kind, codec.encode(codec.plain(defaults[0])) if defaults else None)


class SentLookup(Lookup):
    """A contract as far as one query needs it."""

    def __init__(self, fields: Iterable[SeenField]) -> None:
        self._kept: dict[Path, tuple[Kind | None, Defaults]] = {}
        for field in fields:
            if not field.path:
                raise InputError("a field of the view has no name", field="view")
            self._kept[tuple(field.path)] = field.kind, _defaults_of(field)

    def at(self, path: Path) -> tuple[Kind | None, Defaults]:
        """Return the kind and the defaults at a path."""
        return self._kept.get(path, (None, ()))

    def see(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data with the fields of the query as the caller sees them."""
        for path, (kind, defaults) in self._kept.items():
            found = read(data, path)
            if found is MISSING:
                if defaults:
                    data = {**data, path[0]: defaults[0]}
            elif kind is not None and (seen := value_of(kind, found)) is not found:
                data = _replace_at(data, path, seen)
        return data


def _defaults_of(field: SeenField) -> Defaults:
    if field.default is None:
        return ()
    if len(field.path) != 1:
        raise InputError("only a field at the top has a default", field="view")
    try:
        made = codec.decode(field.default)
    except Corrupt as error:
        raise InputError(f"a default cannot be read: {error.message}", field="view") from None
    return (made if field.kind is None else value_of(field.kind, made),)


def _replace_at(data: Any, path: Path, value: Any) -> Any:
    """Return a copy of data with another value at a path that is there."""
    if not path:
        return value
    if isinstance(data, list):
        place = int(path[0])
        return [*data[:place], _replace_at(data[place], path[1:], value), *data[place + 1 :]]
    return {**data, path[0]: _replace_at(data[path[0]], path[1:], value)}


class SentView:
    """The view of a caller elsewhere. It cannot upgrade: a record of another version ends the call."""

    lazy = True

    def __init__(self, sent: WireView) -> None:
        self._schemas = {each.name: (each.version, SentLookup(each.fields)) for each in sent.schemas}
        self._known = sent.known

    def version(self, schema: str) -> int | None:
        """Return the version of a schema that the caller knows."""
        found = self._schemas.get(schema)
        return self._known.get(schema) if found is None else found[0]

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        """Return the data as the caller sees it."""
        found = self._schemas.get(datum.schema or "")
        if found is None:
            return datum.data
        if datum.schema_version not in (None, found[0]):
            raise CannotSee(
                f"{datum.id!r} is of version {datum.schema_version} of {datum.schema}, and a server cannot"
                f" compare it as version {found[0]}",
                id=datum.id,
            )
        return found[1].see(datum.data)

    def upgrade(self, datum: Datum) -> Mapping[str, Any] | None:
        """Return None: the steps are the caller's."""
        return None

    def lookup(self, schema: str) -> Lookup | None:
        """Return the caller's contract, as far as it was sent."""
        found = self._schemas.get(schema)
        return None if found is None else found[1]


def unpack_view(sent: WireView) -> View:
    """Return a view that was sent."""
    view: View = SentView(sent)
    return view if sent.part is None else PartView(view, sent.part == "gone")
