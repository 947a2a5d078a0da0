"""The path language: `self.data.query` is the verb `data.query`, for agents that speak in paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Set
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dgent import clock
from dgent.errors import InputError, NotFound
from dgent.system.near import nearest
from dgent.universe.universe import Universe
from dgent.verbs import registry
from dgent.verbs.caller import HERE, Caller, check
from dgent.verbs.context import Context
from dgent.verbs.field import VerbField, fields_of
from dgent.verbs.index import MODULES, NOUNS

ROOT = "self"
ALIASES = {"data.causal_chain": "data.chain", "data.manifest": "store.status"}
"""Paths that are known by another name."""
TABLE, TABLE_ALIASES = "data.table", {"causal_chain": "chain"}
"""Another place of the verbs of tables: `self.data.table.crystal.get` is `table.get` with that model."""
POINTS = ("as_of", "since")
"""Fields that take the number of a commit, too."""


class Offer(msgspec.Struct, frozen=True):
    """One path and what it does."""

    path: str
    help: str
    effect: str


class Offers(msgspec.Struct, frozen=True):
    """The paths below a place, with their help."""

    items: list[Offer]


def verb_of(path: str) -> str:
    """Return the verb id of a path; NotFound names the nearest path, or all of them."""
    if not isinstance(path, str):
        raise InputError(f"a path is text, not {type(path).__name__}", field="path")
    id = path.removeprefix(ROOT + ".")
    rooted = path != id
    id = _split_table(id)[0] or ALIASES.get(id, id)
    if rooted and id in MODULES:
        return id
    known = [f"{ROOT}.{each}" for each in MODULES]
    noun = id.partition(".")[0]
    there = [each for each in known if noun in NOUNS and each.startswith(f"{ROOT}.{noun}.")] or known
    # Without the root, which makes any two paths alike.
    near = nearest(id, MODULES).replace("did you mean ", f"did you mean {ROOT}.")
    listed = near or "there is " + ", ".join(there)
    raise NotFound(f"there is no path {path!r}", hint=listed, path=path)


def _split_table(id: str) -> tuple[str, dict[str, str]]:
    """Return the verb and the model of a path below `data.table`; no verb for any other path."""
    place, _, name = id.removeprefix(TABLE + ".").rpartition(".")
    if not id.startswith(TABLE + "."):
        return "", {}
    verb = f"table.{TABLE_ALIASES.get(name, name)}"
    return (verb, {"model": place} if place else {}) if verb in MODULES else ("", {})


def offers(path: str = ROOT) -> Offers:
    """List the paths below one, such as `self` or `self.data`."""
    if path.rstrip(".") == f"{ROOT}.{TABLE}":
        path = f"{ROOT}.table"
    below = [id for id in MODULES if f"{ROOT}.{id}".startswith(path.rstrip(".") + ".")]
    if not below:
        verb_of(path)
    verbs = [registry.find(id) for id in below]
    return Offers([Offer(f"{ROOT}.{verb.id}", verb.help, verb.effect) for verb in verbs])


async def invoke(universe: Universe, path: str, /, *, caller: Caller = HERE, **args: Any) -> Any:
    """Call the verb at a path; `invoke(u, "self.data.query", schema="witness.mark")`.

    A verb that streams gives an async iterator. The caller's trust is checked at every call; listing
    paths (`self`, `self.data`) is open to everyone.
    """
    if isinstance(path, str) and (path == ROOT or path.removeprefix(ROOT + ".") in (*NOUNS, TABLE)):
        check(caller, path, "help")
        return offers(path)
    remote = not getattr(universe.backend, "holds_rooms", True)
    return await dispatch(Context(lambda: _same(universe), caller=caller, remote=remote), path, args)


async def dispatch(context: Context, path: str, args: dict[str, Any]) -> Any:
    """Call the verb at a path in the call context of a door."""
    verb = registry.find(verb_of(path))
    args = {**args, **_split_table(path.removeprefix(ROOT + "."))[1]}
    fields = {field.name: field for field in fields_of(verb, VerbField)}
    given = {_name(name, fields): each for name, each in args.items()}
    result = registry.call(
        verb, context, {name: _plain(fields.get(name), each) for name, each in given.items()}
    )
    if verb.streams:
        stream: AsyncIterator[Any] = result
        return stream
    return await result


PYTHON_NAMES = {"parent_id": "parent", "tags": "tag", "any_tags": "any_tag"}
"""Fields of Datum and Query that the verbs call otherwise."""


def _name(name: str, fields: Mapping[str, VerbField]) -> str:
    """Return the verb's name of an argument, which may be given as Python calls it."""
    meant = PYTHON_NAMES.get(name, name)
    return meant if name not in fields and meant in fields else name


def _plain(field: VerbField | None, value: Any) -> Any:
    """Return an argument as the verb takes it: times, numbers and conditions may be given as values."""
    if field is None:
        return value
    if field.name == "where":
        given = value if isinstance(value, list | tuple) else [value]
        return tuple(_condition(each) for each in given if each is not None)
    if field.many:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Set) else value
    return _time(field.name, value) if field.kind is str else value


def _condition(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise InputError(f"where cannot be written as JSON: {error}", field="where") from None


def _time(name: str, value: Any) -> Any:
    """Return a point in time as text: a moment, that long ago, or the number of a commit."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            hint = "use datetime.now(UTC), or give it as text, which is read as UTC"
            raise InputError(f"{name}: {value} has no time zone", hint=hint, field=name)
        return value.isoformat()
    if isinstance(value, timedelta):
        return (clock.now() - value).isoformat()
    return str(value) if type(value) is int and name in POINTS else value


async def _same(universe: Universe) -> Universe:
    return universe
