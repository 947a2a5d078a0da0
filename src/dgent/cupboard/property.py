"""Properties and their categories: what every crumb, trail or stash has a value for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dgent.cupboard.entity import Entity


@dataclass
class Property(Entity):
    """A property. Its type is categorical, text, integer, boolean, timestamp or list."""

    name: str = ""
    value_type: str = ""
    description: str = ""
    scope: str = "crumb"

    OWN: ClassVar[tuple[str, ...]] = ("name", "value_type", "description", "scope", "extra")

    @property
    def property_id(self) -> str:
        """Its id."""
        return self.id


@dataclass
class Category(Entity):
    """A value of a categorical property; lower ordinals come first."""

    property_id: str = ""
    name: str = ""
    ordinal: int = 0

    OWN: ClassVar[tuple[str, ...]] = ("property_id", "name", "ordinal", "extra")

    @property
    def category_id(self) -> str:
        """Its id."""
        return self.id
