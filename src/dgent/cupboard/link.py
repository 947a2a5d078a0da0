"""The link: how crumbs, trails and stashes hang together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dgent.cupboard.entity import Entity


@dataclass
class Link(Entity):
    """An edge: a crumb `belongs_to` a trail and is `child_of` crumbs, a trail `branches_from` a crumb, a
    stash is `scoped_to` a trail."""

    link_type: str = ""
    from_id: str = ""
    to_id: str = ""

    OWN: ClassVar[tuple[str, ...]] = ("link_type", "from_id", "to_id", "extra")

    @property
    def link_id(self) -> str:
        """Its id."""
        return self.id


class Ends(NamedTuple):
    """What a type of link joins, and whether its start may have only one."""

    start: str
    end: str
    single: bool


ENDS = {
    "belongs_to": Ends("crumb", "trail", True),
    "child_of": Ends("crumb", "crumb", False),
    "branches_from": Ends("trail", "crumb", True),
    "scoped_to": Ends("stash", "trail", True),
}
