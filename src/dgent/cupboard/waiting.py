"""Count the others that each crumb waits for, from states and links.

A crumb waits for every unfinished crumb that it is `child_of`, and for every crumb that it is `part_of` and
that waits itself: the parts of a blocked epic wait until the epic is free.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable

from dgent.cupboard.kind import LINK_RULES, WAITING
from dgent.cupboard.record import CrumbRecord

Edge = tuple[str, str, str]
"""The type of a link, its start and its end."""


def is_blocking(link_type: str, end: CrumbRecord | None) -> bool:
    """Check whether the start of a link waits for its end."""
    if end is None or link_type not in WAITING:
        return False
    return end.state != "pebble" if LINK_RULES[link_type].waits == "done" else end.open_parents > 0


def with_parts(crumbs: Iterable[str], edges: Iterable[Edge]) -> set[str]:
    """Return crumbs with all their parts, and the parts of these."""
    parts = defaultdict(list)
    for link_type, start, end in edges:
        if link_type == "part_of":
            parts[end].append(start)
    found = set(crumbs)
    todo = list(found)
    while todo:
        for part in parts.get(todo.pop(), ()):
            if part not in found:
                found.add(part)
                todo.append(part)
    return found


def count_waiting(
    crumbs: Collection[str],
    edges: Iterable[Edge],
    is_open: Callable[[str], bool],
    is_waiting: Callable[[str], bool] = lambda id: False,
) -> dict[str, int]:
    """Count what each crumb waits for; `crumbs` must have all parts of each.

    `is_open` says of any crumb whether it exists and is not done, `is_waiting` of those not among `crumbs`
    whether they wait.
    """
    waits: Counter[str] = Counter(dict.fromkeys(crumbs, 0))
    parts = defaultdict(list)
    for link_type, start, end in edges:
        if start not in waits or link_type not in WAITING:
            continue
        if LINK_RULES[link_type].waits == "done":
            waits[start] += is_open(end)
        else:
            parts[end].append(start)
    todo = [id for id, count in waits.items() if count]
    todo += [whole for whole in parts if whole not in waits and is_waiting(whole)]
    while todo:
        for part in parts.get(todo.pop(), ()):
            waits[part] += 1
            if waits[part] == 1:
                todo.append(part)
    return dict(waits)
