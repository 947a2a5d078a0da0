"""Resources: memory, work and records by their addresses, `dgent://block/scout/notes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import mcp_types as types
import msgspec

from dgent.doors.mcp.client import Client
from dgent.errors import InputError, NotFound
from dgent.model import reserved

SCHEME = "dgent://"
PAGE = 100
MOST_WORDS = 100  # completions of one word, as the protocol has it
JSON, MARKDOWN = "application/json", "text/markdown"


class Address(NamedTuple):
    """An address, apart: the kind of thing, and the parts that name one."""

    kind: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return SCHEME + "/".join((self.kind, *(quote(part, safe="") for part in self.parts)))


class Kind(NamedTuple):
    """A kind of resource: what it is, the names of its parts, and how it is read."""

    about: str
    parts: tuple[str, ...]
    read: Callable[..., Awaitable[Any]]
    type: str = JSON

    def template(self, kind: str) -> str:
        """Return the template of its addresses."""
        return SCHEME + "/".join((kind, *(f"{{{part}}}" for part in self.parts)))


async def _memory(client: Client) -> str:
    text: str = (await client.call("block.render", changes=True)).text
    return text


async def _block(client: Client, owner: str, label: str) -> str:
    text: str = (await client.call("block.get", label=label, owner=owner)).text
    return text


async def _schema(client: Client, name: str) -> Any:
    found = [each for each in (await client.call("data.schemas")).items if each.name == name]
    if not found:
        raise NotFound(f"there is no schema {name!r}")
    return found[0]


KINDS: dict[str, Kind] = {
    "memory": Kind("Your memory, as it belongs into your context.", (), _memory, MARKDOWN),
    "ready": Kind("Work that can be taken now.", (), lambda client: client.call("crumb.ready", limit=PAGE)),
    "lessons": Kind(
        "What was learned from trails that were given up.", (), lambda c: c.call("trail.lessons")
    ),
    "block": Kind("A block of memory.", ("owner", "label"), _block, MARKDOWN),
    "crumb": Kind("A work item.", ("id",), lambda client, id: client.call("crumb.get", id=id)),
    "trail": Kind(
        "An exploration and its work.", ("id",), lambda client, id: client.call("trail.get", id=id)
    ),
    "schema": Kind("A schema of stored records.", ("name",), _schema),
    "record": Kind("A record.", ("id",), lambda client, id: client.call("data.get", id=id)),
}


def parse_address(uri: str) -> Address:
    """Return the parts of an address; raises InputError for one that is not dgent's."""
    kind, *parts = uri.removeprefix(SCHEME).split("/") if uri.startswith(SCHEME) else [""]
    found = KINDS.get(kind)
    if found is None or len(parts) != len(found.parts) or not all(parts):
        known = ", ".join(each.template(name) for name, each in KINDS.items())
        raise InputError(f"{uri[:200]!r} is not an address here", hint=f"use one of {known}", field="uri")
    try:
        return Address(kind, tuple(unquote(part, errors="strict") for part in parts))
    except UnicodeDecodeError:
        raise InputError(f"{uri[:200]!r} is not valid Unicode text", field="uri") from None


async def read(client: Client, uri: str) -> types.TextResourceContents:
    """Return what is at an address."""
    address = parse_address(uri)
    kind = KINDS[address.kind]
    found = await kind.read(client, *address.parts)
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return types.TextResourceContents(uri=uri, mime_type=kind.type, text=text)


def list_templates() -> list[types.ResourceTemplate]:
    """Return the kinds of addresses with parts."""
    return [
        types.ResourceTemplate(
            name=name, uri_template=kind.template(name), description=kind.about, mime_type=kind.type
        )
        for name, kind in KINDS.items()
        if kind.parts
    ]


async def list_resources(client: Client, offset: int) -> tuple[list[types.Resource], int | None]:
    """Return a page of what can be read, and where the next one begins: fixed ones, blocks, schemas."""
    blocks = (await client.call("block.list", shared=True)).items
    schemas = [name for name in await _schema_names(client) if name not in reserved.OWNERS]
    found = [(Address(name, ()), kind.about) for name, kind in KINDS.items() if not kind.parts]
    found += [(Address("block", (each.owner, each.label)), each.description) for each in blocks]
    found += [(Address("schema", (name,)), "") for name in schemas]
    page = [
        types.Resource(
            name="/".join((address.kind, *address.parts)),
            uri=str(address),
            description=about or None,
            mime_type=KINDS[address.kind].type,
        )
        for address, about in found[offset : offset + PAGE]
    ]
    end = offset + len(page)
    return page, end if end < len(found) else None


async def _schema_names(client: Client) -> list[str]:
    return [each.name for each in (await client.call("data.schemas")).items if each.name]


async def complete(
    client: Client, template: str, name: str, begun: str, given: Mapping[str, str]
) -> list[str]:
    """Return values for one part of a template that begin as what was typed."""
    kind = next((each for each, found in KINDS.items() if found.template(each) == template), None)
    if kind is None:
        return []
    values = [value for value in await _values(client, kind, name, begun, given) if value.startswith(begun)]
    return list(dict.fromkeys(values))


async def _values(client: Client, kind: str, name: str, begun: str, given: Mapping[str, str]) -> list[str]:
    if kind == "block":
        blocks = (await client.call("block.list", shared=True)).items
        owner = given.get("owner")
        return [getattr(each, name) for each in blocks if name == "owner" or owner in (None, each.owner)]
    if kind == "schema":
        return await _schema_names(client)
    if kind == "record":
        found = await client.call("data.list", prefix=begun, limit=MOST_WORDS)
    else:
        found = await client.call(f"{kind}.list", limit=1_000)
    return [each.id for each in found.items]
