"""What all entities share: an id, times, and what they were when they were read."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.definition import Definitions
from dgent.errors import InputError
from dgent.model.ref import Ref

_SHARED = frozenset((str, int, float, bool, type(None), datetime, Ref))


def duplicate(value: Any) -> Any:
    """A value that shares nothing with another that can be changed; `copy.deepcopy`, only quicker."""
    kind = type(value)
    if kind in _SHARED:
        return value
    if kind is dict or kind is Values:
        return {key: duplicate(each) for key, each in value.items()}
    if kind is list:
        return [duplicate(each) for each in value]
    if kind is tuple:
        return tuple(duplicate(each) for each in value)
    return copy.deepcopy(value)


class Values(dict[str, Any]):
    """The values of an entity under the ids of their properties; they are found by name as well."""

    def __init__(self, values: Mapping[str, Any] = {}, names: Mapping[str, str] = {}) -> None:
        super().__init__(values)
        self._ids = names

    def key(self, name_or_id: str) -> str:
        """The key under which a property's value is, given its name or its id."""
        return name_or_id if super().__contains__(name_or_id) else self._ids.get(name_or_id, name_or_id)

    def __getitem__(self, name_or_id: str) -> Any:
        return super().__getitem__(self.key(name_or_id))

    def __setitem__(self, name_or_id: str, value: Any) -> None:
        super().__setitem__(self.key(name_or_id), value)

    def __delitem__(self, name_or_id: str) -> None:
        super().__delitem__(self.key(name_or_id))

    def __contains__(self, name_or_id: object) -> bool:
        return isinstance(name_or_id, str) and super().__contains__(self.key(name_or_id))

    def get(self, name_or_id: str, default: Any = None) -> Any:
        """The value of a property, or the default."""
        return super().get(self.key(name_or_id), default)

    def pop(self, name_or_id: str, *default: Any) -> Any:
        """Take a value out: when it is stored, the property has its default again."""
        return super().pop(self.key(name_or_id), *default)

    def update(self, *values: Any, **named: Any) -> None:
        """Give several properties values."""
        for name_or_id, value in dict(*values, **named).items():
            self[name_or_id] = value


def moment(field: str, given: Any) -> datetime:
    """A time that a caller gave, in UTC, or what is wrong with it."""
    try:
        return clock.from_us(clock.to_us(given))
    except (InputError, TypeError, AttributeError):
        raise errors.InvalidData(f"{field} is an aware datetime, not {given!r:.80}", field=field) from None


@dataclass
class Entity:
    """Something in the cupboard. Methods change it in memory; `table.set` stores it.

    `id` and the times are given by the store. `seq` is the commit that wrote what was last read or stored.
    """

    id: str = field(default="", kw_only=True)
    created_at: datetime | None = field(default=None, kw_only=True)
    extra: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    seq: int | None = field(default=None, init=False, repr=False, compare=False)
    _base: Any = field(default=None, init=False, repr=False, compare=False)  # the record that it was
    _home: str = field(default="", init=False, repr=False, compare=False)
    _born: datetime | None = field(default=None, init=False, repr=False, compare=False)

    OWN: ClassVar[tuple[str, ...]] = ()
    """The fields that the caller may change; the store keeps the rest."""

    def _moment(self, now: datetime) -> datetime:
        """When it was made: now, unless it comes from elsewhere with a time."""
        return now if self.created_at is None else moment("created_at", self.created_at)

    def _remember(self, home: str, record: Any) -> None:
        """Note what it is now, and through which cupboard: `table.set` can tell what was changed since."""
        self._home, self._born, self._base = home, self.created_at, record

    def _was(self) -> dict[str, Any]:
        """The fields that the caller may change, as they were read."""
        return {name: getattr(self._base, name) for name in self.OWN}


@dataclass
class Propertied(Entity):
    """An entity with a value for every property of its scope."""

    properties: dict[str, Any] = field(default_factory=dict, kw_only=True)
    _definitions: Definitions | None = field(default=None, init=False, repr=False, compare=False)

    SCOPE: ClassVar[str] = ""

    def set_property(self, name_or_id: str, value: Any) -> None:
        """Give a property a value; categories by name or id. `table.set` stores it."""
        if not isinstance(name_or_id, str):
            raise errors.PropertyNotFound(f"a property has a name, not {name_or_id!r:.80}")
        if self._definitions is None:
            self.properties[name_or_id] = value  # judged when it is stored
        else:
            defined = self._definitions.find(self.SCOPE, name_or_id)
            self.properties[defined.id] = defined.native(defined.stored(value))
        self._touched()

    def get_property(self, name_or_id: str) -> Any:
        """The value of a property."""
        if not isinstance(name_or_id, str) or name_or_id not in self.properties:
            raise errors.PropertyNotFound(f"this {self.SCOPE} has no property {name_or_id!r}")
        return self.properties[name_or_id]

    def get_properties(self) -> dict[str, Any]:
        """The values of all properties, by the properties' ids."""
        return dict(self.properties)

    def clear_property(self, name_or_id: str) -> None:
        """Give a property the default of its type again."""
        if not isinstance(name_or_id, str):
            raise errors.PropertyNotFound(f"a property has a name, not {name_or_id!r:.80}")
        if self._definitions is not None:
            defined = self._definitions.find(self.SCOPE, name_or_id)
            self.properties[defined.id] = defined.default()
        elif self.properties.pop(name_or_id, self) is self:  # no value: it gets the default when stored
            raise errors.PropertyNotFound(f"this {self.SCOPE} has no property {name_or_id!r}")
        self._touched()

    def _was(self) -> dict[str, Any]:
        was = super()._was()
        if self._definitions is not None:
            was["properties"] = self._definitions.filled(self.SCOPE, was["properties"])
        return was

    def readable(self) -> dict[str, Any]:
        """The values by the names of their properties, and categories by theirs."""
        if self._definitions is None:
            return dict(self.properties)
        return self._definitions.shown(self.SCOPE, self.properties)

    def _touched(self) -> None:
        """Something was changed in memory."""
