"""Definitions of properties and their categories: check, encode and decode values by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.record import (
    CRUMB,
    CRUMB_INDEXES,
    DESCRIPTION,
    PRIORITY,
    CategoryRecord,
    CrumbRecord,
    PropertyRecord,
)
from dgent.errors import InputError
from dgent.model import path
from dgent.model.schema import Schema
from dgent.universe.universe import Universe

UNRANKED = 2**31
"""The rank of a crumb without a priority: behind all that have one."""

_INT64 = 2**63
_NUMBERED = re.compile(r"[Pp]?([0-9])")  # priorities are also known by their ranks: 0, P0

MAX_INDEXED = 16
"""The most properties that are indexed: each costs every crumb an index entry. Others are scanned."""


class Option(NamedTuple):
    """One category of a categorical property."""

    id: str
    name: str
    ordinal: int


class Definition(NamedTuple):
    """A defined property with its categories, lowest ordinal first."""

    id: str
    name: str
    value_type: str
    scope: str
    options: tuple[Option, ...] = ()

    def default(self) -> Any:
        """Return the default of this property."""
        return _DEFAULTS[self.value_type]()

    def find_option(self, name_or_id: str) -> Option | None:
        """Find a category by its id, or else by its name."""
        for option in self.options:
            if option.id == name_or_id:
                return option
        named = next((option for option in self.options if option.name == name_or_id), None)
        if named is None and self.id == PRIORITY and (number := _NUMBERED.fullmatch(name_or_id)):
            return next((option for option in self.options if option.ordinal == int(number[1])), None)
        return named

    def encode(self, value: Any) -> Any:
        """Return a value as it is stored; raises TypeMismatch or InvalidCategory."""
        return _CHECKS[self.value_type](self, value)

    def decode(self, value: Any) -> Any:
        """Return a stored value as a program uses it: a timestamp is a datetime."""
        if self.value_type == "timestamp" and isinstance(value, str):
            return clock.from_us(clock.to_us(datetime.fromisoformat(value)))
        return list(value) if isinstance(value, list | tuple) else value

    def display(self, value: Any) -> Any:
        """Return a stored value as a person reads it: a category by its name."""
        if self.value_type == "categorical" and isinstance(value, str):
            option = self.find_option(value)
            return value if option is None else option.name
        return value

    def mismatch(self, value: Any) -> errors.TypeMismatch:
        """Return the error for a value of another type."""
        return errors.TypeMismatch(
            f"{self.name} takes {_WANTED[self.value_type]}, not {value!r:.80}", property=self.name
        )


class Definitions:
    """All defined properties as of one moment."""

    def __init__(
        self, properties: Mapping[str, PropertyRecord], categories: Mapping[str, CategoryRecord]
    ) -> None:
        self._properties, self._categories = properties, categories
        options: dict[str, list[Option]] = {}
        for id, category in categories.items():
            options.setdefault(category.property_id, []).append(Option(id, category.name, category.ordinal))
        self.by_id: dict[str, Definition] = {}
        for id, found in properties.items():
            mine = sorted(options.get(id, ()), key=lambda option: (option.ordinal, option.name))
            self.by_id[id] = Definition(id, found.name, found.value_type, found.scope, tuple(mine))
        self._by_name = {definition.name: definition for definition in self.by_id.values()}
        self._of: dict[str, list[Definition]] = {}
        for definition in self.by_id.values():
            self._of.setdefault(definition.scope, []).append(definition)
        self._names = {
            scope: {definition.name: definition.id for definition in some} for scope, some in self._of.items()
        }

    def with_categories(self, categories: Mapping[str, CategoryRecord]) -> Definitions:
        """Return these definitions with more categories."""
        return Definitions(self._properties, {**self._categories, **categories})

    def lacks(self, categories: Mapping[str, CategoryRecord]) -> bool:
        """Check whether a category is missing, by its id and by its name."""
        known = {(each.property_id, each.name) for each in self._categories.values()}
        return any(
            id not in self._categories and (each.property_id, each.name) not in known
            for id, each in categories.items()
        )

    def of(self, scope: str) -> Sequence[Definition]:
        """Return the properties of a scope: `crumb`, `trail` or `stash`."""
        return self._of.get(scope, ())

    def names(self, scope: str) -> Mapping[str, str]:
        """Return the ids of the properties of a scope by their names."""
        return self._names.get(scope, {})

    def find(self, scope: str, name_or_id: str) -> Definition:
        """Find a property of a scope by its id, or else by its name; raises PropertyNotFound."""
        definition = self.by_id.get(name_or_id) or self._by_name.get(name_or_id)
        if definition is None or definition.scope != scope:
            known = ", ".join(sorted(each.name for each in self.of(scope)))
            raise errors.PropertyNotFound(
                f"no property {name_or_id!r} is defined for a {scope}", hint=f"there are {known or 'none'}"
            )
        return definition

    def find_any(self, name_or_id: str) -> Definition:
        """Find a property of any scope by its id, or else by its name; raises PropertyNotFound."""
        if not isinstance(name_or_id, str):
            raise errors.PropertyNotFound(f"expected the name or id of a property, got {name_or_id!r:.80}")
        definition = self.by_id.get(name_or_id) or self._by_name.get(name_or_id)
        if definition is None:
            raise errors.PropertyNotFound(f"no property {name_or_id!r} is defined")
        return definition

    def decode_values(self, scope: str, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a decoded value for every property of a scope: the stored one, or the default."""
        values = {}
        for definition in self.of(scope):
            id = definition.id
            if id not in stored:
                values[id] = definition.default()
            elif definition.value_type in _PLAIN:  # most values: this runs for every crumb that is read
                values[id] = stored[id]
            else:
                values[id] = definition.decode(stored[id])
        return values

    def encode_values(self, scope: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Check values given by name or id and return them as stored, with defaults for the others."""
        given = {}
        for name_or_id, value in values.items():
            definition = self.find(scope, name_or_id)
            given[definition.id] = definition.encode(value)
        return {
            definition.id: given[definition.id] if definition.id in given else definition.default()
            for definition in self.of(scope)
        }

    def display_values(self, scope: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by the names of their properties, with categories by their names."""
        return {
            definition.name: definition.display(values[definition.id])
            for definition in self.of(scope)
            if definition.id in values
        }

    def rank(self, values: Mapping[str, Any]) -> int:
        """Return the rank that a crumb's priority gives it in the queue; lower comes first."""
        priority = self.by_id.get(PRIORITY)
        chosen = values.get(PRIORITY)
        option = priority.find_option(chosen) if priority is not None and isinstance(chosen, str) else None
        return UNRANKED if option is None else option.ordinal


# -- the six types ----------------------------------------------------------------------------


def _categorical(definition: Definition, value: Any) -> Any:
    if value is None:
        return None
    if definition.id == PRIORITY and type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise definition.mismatch(value)
    option = definition.find_option(value)
    if option is None:
        names = ", ".join(each.name for each in definition.options)
        raise errors.InvalidCategory(
            f"{value!r} is not a category of {definition.name}", hint=_suggest(definition, names)
        )
    return option.id


def _suggest(definition: Definition, names: str) -> str | None:
    if not names:
        return None
    ranks = ", or 0 to 4" if definition.id == PRIORITY else ""
    return f"use one of {names}{ranks}; property category adds one"


def _text(definition: Definition, value: Any) -> Any:
    if not isinstance(value, str):
        raise definition.mismatch(value)
    return value


def _integer(definition: Definition, value: Any) -> Any:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise definition.mismatch(value)
    return value


def _boolean(definition: Definition, value: Any) -> Any:
    if type(value) is not bool:
        raise definition.mismatch(value)
    return value


def _timestamp(definition: Definition, value: Any) -> Any:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return clock.text(clock.from_us(clock.to_us(moment)))
    except (InputError, ValueError, TypeError, AttributeError):
        raise definition.mismatch(value) from None


def _list(definition: Definition, value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise definition.mismatch(value)
    return list(value)


_PLAIN = frozenset(("categorical", "text", "integer", "boolean"))
_CHECKS = {
    "categorical": _categorical,
    "text": _text,
    "integer": _integer,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "list": _list,
}
_DEFAULTS: dict[str, Any] = {
    "categorical": lambda: None,
    "text": str,
    "integer": int,
    "boolean": bool,
    "timestamp": lambda: None,
    "list": list,
}
_WANTED = {
    "categorical": "a category",
    "text": "text",
    "integer": "a whole number of 64 bits",
    "boolean": "true or false",
    "timestamp": "an aware datetime or RFC 3339 text",
    "list": "a list of texts",
}


# -- indexes --------------------------------------------------------------------------------


def declare_indexes(universe: Universe, definitions: Definitions, known: frozenset[str]) -> frozenset[str]:
    """Index crumbs by the values of their properties and by each item of a list, but not by descriptions."""
    wanted = [_index_on(definition) for definition in definitions.of("crumb") if definition.id != DESCRIPTION]
    wanted = wanted[:MAX_INDEXED]
    if not known.issuperset(wanted):
        universe.register(_declare_crumb((*CRUMB_INDEXES, *wanted)))
    return known.union(wanted)


@lru_cache(16)  # a schema compiles its contract, and most cupboards have the same properties
def _declare_crumb(indexes: tuple[str, ...]) -> Schema[CrumbRecord]:
    return replace(CRUMB, indexes=indexes)


def _index_on(definition: Definition) -> str:
    found = path.text(("properties", definition.id))
    return f"{found}.*" if definition.value_type == "list" else found
