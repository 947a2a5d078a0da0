"""The defined properties and their categories, and what they say about values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.builtin import PRIORITY
from dgent.cupboard.record import CategoryRecord, PropertyRecord
from dgent.errors import InputError

UNRANKED = 2**31
"""Where a crumb without a priority stands: behind all that have one."""

_INT64 = 2**63


class Choice(NamedTuple):
    """A category of a property."""

    id: str
    name: str
    ordinal: int


class Defined(NamedTuple):
    """A property with its categories, lowest ordinal first."""

    id: str
    name: str
    value_type: str
    scope: str
    choices: tuple[Choice, ...] = ()

    def default(self) -> Any:
        """The value of whoever was given none."""
        return _DEFAULTS[self.value_type]()

    def choice(self, name_or_id: str) -> Choice | None:
        """The category of an id, or else of a name."""
        for choice in self.choices:
            if choice.id == name_or_id:
                return choice
        return next((choice for choice in self.choices if choice.name == name_or_id), None)

    def stored(self, value: Any) -> Any:
        """A value as it is stored, or what is wrong with it."""
        return _CHECKS[self.value_type](self, value)

    def native(self, value: Any) -> Any:
        """A stored value as a program uses it."""
        if self.value_type == "timestamp" and isinstance(value, str):
            return clock.from_us(clock.to_us(datetime.fromisoformat(value)))
        return list(value) if isinstance(value, list | tuple) else value

    def shown(self, value: Any) -> Any:
        """A stored value as a person reads it: categories by name."""
        if self.value_type == "categorical" and isinstance(value, str):
            choice = self.choice(value)
            return value if choice is None else choice.name
        return value

    def mismatch(self, value: Any) -> errors.TypeMismatch:
        """The error for a value of another type."""
        return errors.TypeMismatch(
            f"{self.name} takes {_WANTED[self.value_type]}, not {value!r:.80}", property=self.name
        )


class Definitions:
    """All properties as of one moment."""

    def __init__(
        self, properties: Mapping[str, PropertyRecord], categories: Mapping[str, CategoryRecord]
    ) -> None:
        self._properties, self._categories = properties, categories
        choices: dict[str, list[Choice]] = {}
        for id, category in categories.items():
            choices.setdefault(category.property_id, []).append(Choice(id, category.name, category.ordinal))
        self.by_id: dict[str, Defined] = {}
        for id, found in properties.items():
            mine = sorted(choices.get(id, ()), key=lambda choice: (choice.ordinal, choice.name))
            self.by_id[id] = Defined(id, found.name, found.value_type, found.scope, tuple(mine))
        self._by_name = {defined.name: defined for defined in self.by_id.values()}
        self._of: dict[str, list[Defined]] = {}
        for defined in self.by_id.values():
            self._of.setdefault(defined.scope, []).append(defined)
        self._names = {
            scope: {defined.name: defined.id for defined in some} for scope, some in self._of.items()
        }

    def extended(self, categories: Mapping[str, CategoryRecord]) -> Definitions:
        """The same with more categories."""
        return Definitions(self._properties, {**self._categories, **categories})

    def of(self, scope: str) -> Sequence[Defined]:
        """The properties of crumbs, of trails or of stashes."""
        return self._of.get(scope, ())

    def names(self, scope: str) -> Mapping[str, str]:
        """The ids of those properties, by their names."""
        return self._names.get(scope, {})

    def find(self, scope: str, name_or_id: str) -> Defined:
        """The property of an id, or else of a name."""
        defined = self.by_id.get(name_or_id) or self._by_name.get(name_or_id)
        if defined is None or defined.scope != scope:
            known = ", ".join(sorted(each.name for each in self.of(scope)))
            raise errors.PropertyNotFound(
                f"no property {name_or_id!r} is defined for a {scope}", hint=f"there are {known or 'none'}"
            )
        return defined

    def any(self, name_or_id: str) -> Defined:
        """The property of an id, or else of a name, whatever has it."""
        if not isinstance(name_or_id, str):
            raise errors.PropertyNotFound(f"a property has a name, not {name_or_id!r:.80}")
        defined = self.by_id.get(name_or_id) or self._by_name.get(name_or_id)
        if defined is None:
            raise errors.PropertyNotFound(f"there is no property {name_or_id!r}")
        return defined

    def filled(self, scope: str, stored: Mapping[str, Any]) -> dict[str, Any]:
        """A value for every property, as programs use them: what is stored, or the default."""
        return {
            defined.id: defined.native(stored[defined.id]) if defined.id in stored else defined.default()
            for defined in self.of(scope)
        }

    def stored(self, scope: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values given by name or id, checked, as they are stored; those not given get the default."""
        given = {}
        for name_or_id, value in values.items():
            defined = self.find(scope, name_or_id)
            given[defined.id] = defined.stored(value)
        return {
            defined.id: given[defined.id] if defined.id in given else defined.default()
            for defined in self.of(scope)
        }

    def shown(self, scope: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by the names of their properties, categories by theirs."""
        return {
            defined.name: defined.shown(values[defined.id])
            for defined in self.of(scope)
            if defined.id in values
        }

    def rank(self, values: Mapping[str, Any]) -> int:
        """Where a crumb's priority puts it: lower comes first."""
        priority = self.by_id.get(PRIORITY)
        chosen = values.get(PRIORITY)
        choice = priority.choice(chosen) if priority is not None and isinstance(chosen, str) else None
        return UNRANKED if choice is None else choice.ordinal


# -- the six types ----------------------------------------------------------------------------


def _categorical(defined: Defined, value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise defined.mismatch(value)
    choice = defined.choice(value)
    if choice is None:
        names = ", ".join(each.name for each in defined.choices)
        raise errors.InvalidCategory(
            f"{value!r} is no category of {defined.name}", hint=f"use one of {names}" if names else None
        )
    return choice.id


def _text(defined: Defined, value: Any) -> Any:
    if not isinstance(value, str):
        raise defined.mismatch(value)
    return value


def _integer(defined: Defined, value: Any) -> Any:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise defined.mismatch(value)
    return value


def _boolean(defined: Defined, value: Any) -> Any:
    if type(value) is not bool:
        raise defined.mismatch(value)
    return value


def _timestamp(defined: Defined, value: Any) -> Any:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return clock.text(clock.from_us(clock.to_us(moment)))
    except (InputError, ValueError, TypeError, AttributeError):
        raise defined.mismatch(value) from None


def _list(defined: Defined, value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise defined.mismatch(value)
    return list(value)


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
