"""The graph of crumbs, trails and stashes, as Mermaid and Graphviz text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgent.cupboard.record import CRUMB, LINK, STASH, TRAIL, LinkRecord
from dgent.model.crystal import Crystal
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard
    from dgent.universe.universe import Universe

_NOUNS = {CRUMB.name: "crumb", TRAIL.name: "trail", STASH.name: "stash"}
_SHAPES = {"crumb": ('["', '"]'), "trail": ('(["', '"])'), "stash": ('[("', '")]')}
_DOT_SHAPES = {"crumb": "box", "trail": "ellipse", "stash": "cylinder"}


@dataclass(frozen=True)
class Node:
    """A crumb, a trail or a stash; the state of a stash is its type."""

    id: str
    kind: str
    name: str
    state: str


@dataclass(frozen=True)
class Edge:
    """A link."""

    link_type: str
    from_id: str
    to_id: str


@dataclass(frozen=True)
class Graph:
    """Crumbs, trails and stashes with their links, oldest first."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def mermaid(self) -> str:
        """Return a Mermaid flowchart; a crumb stands above those that wait for it."""
        names = {node.id: f"n{place}" for place, node in enumerate(self.nodes)}
        lines = ["flowchart TD"]
        for node in self.nodes:
            opening, closing = _SHAPES[node.kind]
            lines.append(f"    {names[node.id]}{opening}{_escape_mermaid(_label(node))}{closing}")
        for edge in self._visible_edges():
            if edge.link_type == "child_of":
                lines.append(f"    {names[edge.to_id]} --> {names[edge.from_id]}")
            else:
                lines.append(f"    {names[edge.from_id]} -. {edge.link_type} .-> {names[edge.to_id]}")
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """Return a graph in the DOT language of Graphviz."""
        lines = ["digraph cupboard {"]
        for node in self.nodes:
            shape = _DOT_SHAPES[node.kind]
            lines.append(f"  {_quote_dot(node.id)} [label={_quote_dot(_label(node))}, shape={shape}];")
        for edge in self._visible_edges():
            if edge.link_type == "child_of":
                lines.append(f"  {_quote_dot(edge.to_id)} -> {_quote_dot(edge.from_id)};")
            else:
                label = f"style=dashed, label={_quote_dot(edge.link_type)}"
                lines.append(f"  {_quote_dot(edge.from_id)} -> {_quote_dot(edge.to_id)} [{label}];")
        return "\n".join([*lines, "}"]) + "\n"

    def _visible_edges(self) -> Iterable[Edge]:
        known = {node.id for node in self.nodes}
        return [edge for edge in self.edges if edge.from_id in known and edge.to_id in known]


async def load_graph(cupboard: Cupboard, trail: str | None) -> Graph:
    """Load the whole graph, or one trail with its crumbs and everything linked to them."""
    universe = await cupboard._ready()
    seq = await universe.seq()
    links = [each.value for each in await _load_all(universe, LINK.name, seq)]
    if trail is not None:
        links = _select_links(links, trail)
        ends = dict.fromkeys([trail, *(id for link in links for id in (link.from_id, link.to_id))])
        some = await universe.get_many(list(ends), as_of=seq)
        found = [each for each in some if isinstance(each, Crystal) and each.schema_name in _NOUNS]
    else:
        found = [each for name in _NOUNS for each in await _load_all(universe, name, seq)]
    edges = tuple(Edge(link.link_type, link.from_id, link.to_id) for link in links)
    return Graph(tuple(map(_build_node, found)), edges)


def _select_links(links: list[LinkRecord], trail: str) -> list[LinkRecord]:
    """Return the links of a trail and of its crumbs."""
    inside = {trail} | {link.from_id for link in links if link.to_id == trail}
    return [link for link in links if link.from_id in inside or link.to_id in inside]


async def _load_all(universe: Universe, schema: str, seq: int) -> list[Crystal[Any]]:
    """Load the readable records of a schema, oldest first."""
    query = Query(schema=schema, descending=False, limit=None)
    return [each async for each in universe.iterate(query, as_of=seq) if isinstance(each, Crystal)]


def _build_node(found: Crystal[Any]) -> Node:
    record = found.value
    state = record.stash_type if found.schema_name == STASH.name else record.state
    return Node(found.id, _NOUNS[found.schema_name], record.name, state)


def _label(node: Node) -> str:
    return f"{node.name or node.id} ({node.state})"


def _escape_mermaid(text: str) -> str:
    """Return a label for Mermaid, with every character that could be syntax written as its number."""
    return "".join(
        letter if letter.isalnum() or letter in " ._-/:(),+" else f"#{ord(letter)};" for letter in text[:200]
    )


def _quote_dot(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text[:200])
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
