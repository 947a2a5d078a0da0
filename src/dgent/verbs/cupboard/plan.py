"""Read work to be added: one name, a line each, a Markdown list with parts, or JSON with links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from dgent.errors import InputError
from dgent.system.near import nearest
from dgent.verbs.cupboard import input
from dgent.verbs.registry import Ask, option

if TYPE_CHECKING:
    from dgent.cupboard import Cupboard

_ITEM = re.compile(r"(?P<indent>\s*)(?:[-*+]|\d+[.)])\s+(?:\[(?P<box>[ xX])\]\s+)?(?P<name>.*\S)\s*")
_HEADING = re.compile(r"#+\s+(?P<name>.*\S)\s*")
TAB = 4


class Relations(Ask, kw_only=True):
    """Options that link a crumb to others; lists may have commas."""

    needs: Annotated[tuple[str, ...], option("it waits for these crumbs", complete="crumb")] = ()
    blocks: Annotated[tuple[str, ...], option("these crumbs wait for it", complete="crumb")] = ()
    part_of: Annotated[tuple[str, ...], option("it is a part of this epic", complete="crumb")] = ()
    related: Annotated[tuple[str, ...], option("it is related to these crumbs", complete="crumb")] = ()
    discovered_from: Annotated[tuple[str, ...], option("work on this crumb led to it", complete="crumb")] = ()
    duplicate_of: Annotated[tuple[str, ...], option("it is the same as this crumb", complete="crumb")] = ()
    supersedes: Annotated[tuple[str, ...], option("it replaces these crumbs", complete="crumb")] = ()


LINKS = {
    "needs": "child_of",
    "part_of": "part_of",
    "related": "related_to",
    "discovered_from": "discovered_from",
    "duplicate_of": "duplicate_of",
    "supersedes": "supersedes",
}
"""The type of link of each option; `blocks` is `needs` the other way round."""

VALUES = ("type", "priority", "description", "owner", "labels")
NAMES = {"title": "name", "assignee": "owner", "issue_type": "type", "status": "state", "label": "labels"}
KNOWN = (*LINKS, *VALUES, "name", "state", "key", "blocks", "parts", "properties")


class Plan(NamedTuple):
    """One crumb to be added, as its input gives it; `above` is the place of the one that it is part of."""

    name: str
    fields: Mapping[str, Any] = {}
    above: int | None = None


def read_plans(text: str) -> list[Plan]:
    """Read what is to be added; raises InputError when that is nothing."""
    plans = _read_json(text)
    if plans is None:
        lines = [line for line in text.splitlines() if line.strip()]
        listed = len(lines) > 1 and any(_ITEM.fullmatch(line) for line in lines)
        plans = list(_read_list(lines)) if listed else [Plan(line.strip()) for line in lines]
    if not plans:
        raise InputError(
            "there is nothing to add", hint="give a name, or lines on standard input", field="text"
        )
    return plans


def _read_list(lines: Iterable[str]) -> Iterator[Plan]:
    """Yield the items of a Markdown list; one that is indented is part of the item above it."""
    open_items: list[tuple[int, int]] = []  # indents and places of the items that a line may be below
    place = -1
    for line in lines:
        item, heading = _ITEM.fullmatch(line), _HEADING.fullmatch(line)
        if item is None and heading is None:
            continue  # text between the items
        place += 1
        if heading is not None:
            open_items = [(-1, place)]
            yield Plan(heading["name"], {"type": "epic"})
            continue
        assert item is not None
        indent = len(item["indent"].expandtabs(TAB))
        while open_items and open_items[-1][0] >= indent:
            open_items.pop()
        done = {"state": "pebble"} if (item["box"] or "").lower() == "x" else {}
        yield Plan(item["name"], done, open_items[-1][1] if open_items else None)
        open_items.append((indent, place))


def _read_json(text: str) -> list[Plan] | None:
    """Read an object, a list of them, or an object a line; None for anything else."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        try:
            found = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        except msgspec.DecodeError:
            if text.lstrip().startswith("{"):
                raise InputError("text is not valid JSON", field="text") from None
            return None  # a name such as [ui] fix the button
    plans: list[Plan] = []
    for each in found if isinstance(found, list) else [found]:
        _read_object(each, None, plans)
    return plans


def _read_object(given: Any, above: int | None, plans: list[Plan]) -> None:
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, dict):
        raise InputError(f"expected an object for each crumb, got {given!r:.60}", field="text")
    fields: dict[str, Any] = {str(NAMES.get(name, name)): value for name, value in given.items()}
    for unknown in fields.keys() - set(KNOWN):
        raise InputError(f"a crumb has no {unknown!r}", hint=nearest(unknown, KNOWN), field="text")
    name = fields.pop("name", None)
    if not isinstance(name, str) or not name:
        raise InputError(f"expected a name for each crumb, got {name!r}", field="text")
    parts = fields.pop("parts", [])
    place = len(plans)
    plans.append(Plan(name, fields, above))
    for part in parts if isinstance(parts, list) else [parts]:
        _read_object(part, place, plans)


# -- links ----------------------------------------------------------------------------------------


Links = list[tuple[str, int | str, int | str]]


async def links_of(cupboard: Cupboard, ask: Relations, place: int | str) -> Links:
    """Return the links that the options ask for; `place` is the crumb that they are about."""
    given = {name: input.split_list(getattr(ask, name)) for name in (*LINKS, "blocks")}
    return await find_links(cupboard, given, place, {})


async def find_links(
    cupboard: Cupboard, given: Mapping[str, Any], place: int | str, keys: Mapping[str, int]
) -> Links:
    """Return links to crumbs that are given by the keys of new crumbs, or as ids, short ids or names."""
    links: Links = []
    for name in (*LINKS, "blocks"):
        wanted = given.get(name) or []
        for each in [wanted] if isinstance(wanted, str) else wanted:
            other: int | str
            if each in keys:
                other = keys[each]
            else:
                other = await input.id_of(cupboard, "crumbs", str(each))
            ends = (other, place) if name == "blocks" else (place, other)
            links.append((LINKS.get(name, "child_of"), *ends))
    return list(dict.fromkeys(links))
