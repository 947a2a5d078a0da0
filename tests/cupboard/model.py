"""The rules of the cupboard once more, as plainly as possible: every answer is worked out from scratch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

ENDED = ("completed", "abandoned")
KINDS = {
    "belongs_to": ("crumbs", "trails"),
    "child_of": ("crumbs", "crumbs"),
    "part_of": ("crumbs", "crumbs"),
    "related_to": ("crumbs", "crumbs"),
    "supersedes": ("crumbs", "crumbs"),
    "branches_from": ("trails", "crumbs"),
    "scoped_to": ("stashes", "trails"),
}
WAITING = ("child_of", "part_of")
MANY = (*WAITING, "related_to", "supersedes")


class Refused(Exception):
    """What the cupboard must refuse too, with the name of its error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@dataclass
class ModelCrumb:
    state: str
    born: int
    priority: str | None = None
    defer: datetime | None = None
    lease: datetime | None = None
    token: int = 0
    values: dict[str, int] = field(default_factory=dict)
    holder: str | None = None


@dataclass
class ModelStash:
    name: str
    kind: str
    born: int
    number: int = 0
    version: int = 1
    holder: str | None = None
    until: datetime | None = None


Triple = tuple[str, str, str]
RANK = {"high": 1, "low": 3, None: 9}


class Model:
    """Everything in a cupboard."""

    def __init__(self) -> None:
        self.crumbs: dict[str, ModelCrumb] = {}
        self.trails: dict[str, str] = {}
        self.stashes: dict[str, ModelStash] = {}
        self.links: dict[Triple, str] = {}
        self.properties: set[str] = set()
        self.births = 0

    def born(self) -> int:
        self.births += 1
        return self.births

    # -- what follows -------------------------------------------------------------------------

    def open_parents(self, crumb: str) -> set[str]:
        """Parents that are not done, and wholes that wait themselves."""
        mine = [(kind, end) for kind, start, end in self.links if start == crumb]
        parents = {end for kind, end in mine if kind == "child_of" and self.crumbs[end].state != "pebble"}
        return parents | {end for kind, end in mine if kind == "part_of" and self.open_parents(end)}

    def ready(self, now: datetime) -> list[str]:
        """State ready, or taken by somebody who is silent; every parent a pebble; not put off."""
        found = [
            id
            for id, crumb in self.crumbs.items()
            if (crumb.state == "ready" or (crumb.state == "taken" and crumb.lease and crumb.lease <= now))
            and not self.open_parents(id)
            and (crumb.defer is None or crumb.defer <= now)
        ]
        return sorted(found, key=lambda id: (RANK[self.crumbs[id].priority], self.crumbs[id].born))

    def blocked(self) -> set[str]:
        waiting = {id for id in self.crumbs if self.open_parents(id)}
        return {id for id in waiting if self.crumbs[id].state not in ("pebble", "dust")}

    def scope(self, stash: str) -> str | None:
        return next((end for kind, start, end in self.links if (kind, start) == ("scoped_to", stash)), None)

    def check_name(self, stash: str, scope: str | None) -> None:
        for other, found in self.stashes.items():
            if other != stash and found.name == self.stashes[stash].name and self.scope(other) == scope:
                raise Refused("DuplicateName")

    # -- changes, on a copy that counts only when nothing is refused ----------------------------

    def add_link(self, kind: str, start: str, end: str, id: str) -> None:
        for table, place in zip(KINDS[kind], (start, end), strict=True):
            if place not in getattr(self, table):
                raise Refused("EntityNotFound")
        if kind == "belongs_to" and self.trails[end] in ENDED:
            raise Refused("InvalidState")
        if kind in MANY and kind not in WAITING and start == end:
            raise Refused("InvalidData")
        if (kind, start, end) in self.links or (kind == "related_to" and (kind, end, start) in self.links):
            raise Refused("DuplicateLink")
        if kind not in MANY and any((k, s) == (kind, start) for k, s, _ in self.links):
            raise Refused("AlreadyInTrail" if kind == "belongs_to" else "Cardinality")
        if kind in WAITING and (start == end or start in self.ancestors(end)):
            raise Refused("Cycle")
        if kind == "scoped_to":
            self.check_name(start, end)
        self.links[kind, start, end] = id

    def ancestors(self, crumb: str) -> set[str]:
        found: set[str] = set()
        level = {crumb}
        while level:
            level = {e for k, s, e in self.links if k in WAITING and s in level} - found
            found |= level
        return found

    def remove_link(self, link: Triple) -> None:
        del self.links[link]
        if link[0] == "scoped_to":
            self.check_name(link[1], None)

    def remove_crumb(self, id: str) -> None:
        del self.crumbs[id]
        self.links = {link: each for link, each in self.links.items() if id not in link[1:]}

    def set_state(self, id: str, state: str) -> None:
        crumb = self.crumbs[id]
        if crumb.state == "taken" and state != "taken":
            crumb.lease = crumb.holder = None
        crumb.state = state

    def set_trail(self, id: str, state: str) -> None:
        was = self.trails.get(id)
        self.trails[id] = state
        if was is None or was == state or state not in ENDED:
            return
        for kind, start, end in list(self.links):
            if kind == "belongs_to" and end == id:
                if state == "completed":
                    del self.links[kind, start, end]
                else:
                    self.remove_crumb(start)
            elif kind == "scoped_to" and end == id and state == "abandoned":
                del self.links[kind, start, end], self.stashes[start]

    def remove_trail(self, id: str) -> None:
        mine = [start for kind, start, end in self.links if kind == "scoped_to" and end == id]
        self.links = {link: each for link, each in self.links.items() if id not in link[1:]}
        for stash in mine:
            self.check_name(stash, None)
        del self.trails[id]

    def remove_stash(self, id: str, now: datetime) -> None:
        stash = self.stashes[id]
        if stash.holder and stash.until is not None and stash.until > now:
            raise Refused("LockHeld")
        self.links = {link: each for link, each in self.links.items() if link[1] != id}
        del self.stashes[id]

    def picture(self) -> dict[str, Any]:
        """What can be compared with a cupboard."""
        return {
            "crumbs": {
                id: (c.state, c.priority, c.token, {p: c.values.get(p, 0) for p in self.properties})
                for id, c in self.crumbs.items()
            },
            "trails": dict(self.trails),
            "links": set(self.links),
            "stashes": {
                id: (s.name, s.kind, s.number, s.version, s.holder) for id, s in self.stashes.items()
            },
        }
