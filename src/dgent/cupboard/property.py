"""Properties and their categories: what every crumb, trail or stash has a value for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dgent.cupboard.entity import Entity

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard


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

    async def define_category(self, cupboard: Cupboard, name: str, ordinal: int = 0) -> Category:
        """Add a category to this property, which is stored at once."""
        return await cupboard.properties.define_category(self, name, ordinal)

    async def get_categories(self, cupboard: Cupboard) -> list[Category]:
        """Its categories, lowest ordinal first."""
        return await cupboard.properties.get_categories(self)


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
