"""Base classes of entities: id, times, properties, and the record they were read from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.definition import Definitions
from dgent.errors import InputError
from dgent.model.ref import Ref

SHARED = frozenset((str, int, float, bool, type(None), datetime, Ref))


def duplicate(value: Any) -> Any:
    """Return a deep copy of a value; faster than `copy.deepcopy` for JSON-like values."""
    kind = type(value)
    if kind in SHARED:
        return value
    if kind is dict or kind is Values:
        return {key: duplicate(each) for key, each in value.items()}
    if kind is list:
        return [duplicate(each) for each in value]
    if kind is tuple:
        return tuple(duplicate(each) for each in value)
    return copy.deepcopy(value)


class Values(dict[str, Any]):
    """The values of an entity by property id; they can be read and set by property name as well."""

    def __init__(self, values: Mapping[str, Any] = {}, names: Mapping[str, str] = {}) -> None:
        super().__init__(values)
        self._ids = names

    def key(self, name_or_id: str) -> str:
        """Return the key of a property's value, given its name or its id."""
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
        """Return the value of a property, or the default."""
        return super().get(self.key(name_or_id), default)

    def pop(self, name_or_id: str, *default: Any) -> Any:
        """Remove a value; when the entity is stored, the property has its default again."""
        return super().pop(self.key(name_or_id), *default)

    def update(self, *values: Any, **named: Any) -> None:
        """Set the values of several properties."""
        for name_or_id, value in dict(*values, **named).items():
            self[name_or_id] = value


def check_time(field: str, given: Any) -> datetime:
    """Return a time that a caller gave, in UTC; raises InvalidData unless it is an aware datetime."""
    try:
        return clock.from_us(clock.to_us(given))
    except (InputError, TypeError, AttributeError):
        raise errors.InvalidData(
            f"expected an aware datetime for {field!r}, got {given!r:.80}", field=field
        ) from None


class Memory(NamedTuple):
    """The record that an entity was read from or stored as, by which `table.set` finds what was changed."""

    id: str
    record: Any
    home: str  # the cupboard
    created_at: datetime | None
    seq: int | None
    definitions: Definitions
    taken_by: str | None = None  # the agent that `take` gave the crumb to


@dataclass
class Entity:
    """Something in the cupboard. Methods change it in memory; `table.set` stores it.

    The store sets `id` and the times. `seq` is the commit that wrote the entity as last read or stored.
    """

    id: str = field(default="", kw_only=True)
    created_at: datetime | None = field(default=None, kw_only=True)
    extra: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    seq: int | None = field(default=None, init=False, repr=False, compare=False)
    _memory: Memory | None = field(default=None, kw_only=True, repr=False, compare=False)

    OWN: ClassVar[tuple[str, ...]] = ()
    """The fields that the caller may change; the store keeps the rest."""

    def __post_init__(self) -> None:
        memory = self._memory  # a copy by `dataclasses.replace` has that of the original
        if memory is not None and memory.id == self.id:
            self._recall(memory)
        else:
            self._memory = None

    def _recall(self, memory: Memory) -> None:
        """Set the fields that only the store sets, which `dataclasses.replace` leaves out."""
        self.seq, known = memory.seq, vars(memory.record)
        for each in fields(self):
            if not each.init and each.name in known:
                setattr(self, each.name, known[each.name])

    def _creation_time(self, now: datetime) -> datetime:
        """Return when it was made: now, unless the caller gave a time."""
        return now if self.created_at is None else check_time("created_at", self.created_at)

    @property
    def _definitions(self) -> Definitions | None:
        """The definitions of properties when it was read."""
        return None if self._memory is None else self._memory.definitions

    def _original_fields(self, record: Any) -> dict[str, Any]:
        """Return the fields that the caller may change, as they were read."""
        return {name: getattr(record, name) for name in self.OWN}


@dataclass
class Propertied(Entity):
    """An entity with a value for every property of its scope."""

    properties: dict[str, Any] = field(default_factory=dict, kw_only=True)

    SCOPE: ClassVar[str] = ""

    def set_property(self, name_or_id: str, value: Any) -> None:
        """Set the value of a property; categories by name or id. `table.set` stores it."""
        if not isinstance(name_or_id, str):
            raise errors.PropertyNotFound(f"expected the name or id of a property, got {name_or_id!r:.80}")
        if self._definitions is None:
            self.properties[name_or_id] = value  # judged when it is stored
        else:
            definition = self._definitions.find(self.SCOPE, name_or_id)
            self.properties[definition.id] = definition.decode(definition.encode(value))
        self._touch()

    def get_property(self, name_or_id: str) -> Any:
        """Return the value of a property; raises PropertyNotFound."""
        if not isinstance(name_or_id, str) or name_or_id not in self.properties:
            raise errors.PropertyNotFound(f"this {self.SCOPE} has no property {name_or_id!r}")
        return self.properties[name_or_id]

    def get_properties(self) -> dict[str, Any]:
        """Return the values of all properties by property id."""
        return dict(self.properties)

    def clear_property(self, name_or_id: str) -> None:
        """Reset a property to the default of its type."""
        if not isinstance(name_or_id, str):
            raise errors.PropertyNotFound(f"expected the name or id of a property, got {name_or_id!r:.80}")
        if self._definitions is not None:
            definition = self._definitions.find(self.SCOPE, name_or_id)
            self.properties[definition.id] = definition.default()
        elif self.properties.pop(name_or_id, self) is self:  # no value: it gets the default when stored
            raise errors.PropertyNotFound(f"this {self.SCOPE} has no property {name_or_id!r}")
        self._touch()

    def _original_fields(self, record: Any) -> dict[str, Any]:
        was = super()._original_fields(record)
        if self._definitions is not None:
            was["properties"] = self._definitions.decode_values(self.SCOPE, was["properties"])
        return was

    def readable(self) -> dict[str, Any]:
        """Return the values by property name, with categories by their names."""
        if self._definitions is None:
            return dict(self.properties)
        return self._definitions.display_values(self.SCOPE, self.properties)

    def _touch(self) -> None:
        """Update the time of the last change, where the entity has one."""
