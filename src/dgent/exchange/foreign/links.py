"""Check the links of an import: report broken rules, find cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dgent.cupboard import batch
from dgent.cupboard.kind import ENDED, LINK_RULES, WAITING
from dgent.cupboard.record import CrumbRecord, StashRecord, TrailRecord
from dgent.exchange.foreign.fields import SourceRow
from dgent.exchange.foreign.incoming import ImportRun

_RECORDS: dict[str, type[Any]] = {"crumb": CrumbRecord, "trail": TrailRecord, "stash": StashRecord}


async def report_broken_links(run: ImportRun, rows: Iterable[SourceRow]) -> None:
    """Report the links that break a rule; they are imported all the same, and `audit` reports them."""
    mine = list(rows)
    if not mine:
        return
    links = (await batch.all_links(run.changeset)).values()
    starts = Counter((link.link_type, link.from_id) for link in links)
    triples = Counter((link.link_type, link.from_id, link.to_id) for link in links)
    knots = find_cycles((link.from_id, link.to_id) for link in links if link.link_type in WAITING)
    for row in mine:
        link_type, start, end = (row.fields[name] for name in ("link_type", "from_id", "to_id"))
        for message in (
            *_check_ends(run, link_type, start, end),
            *_check_cardinality(starts, triples, link_type, start, end),
        ):
            run.report(row.file, row.line, message)
        if link_type in WAITING and start in knots and knots[start] == knots.get(end):
            run.report(row.file, row.line, f"{start!r} and {end!r} wait for each other in a cycle")


def _check_ends(run: ImportRun, link_type: str, start: str, end: str) -> Iterable[str]:
    for id, noun in ((start, LINK_RULES[link_type].start), (end, LINK_RULES[link_type].end)):
        record = run.changeset.record(id)
        if not isinstance(record, _RECORDS[noun]):
            yield f"the {noun} {id!r} of this {link_type} link does not exist"
        elif link_type == "belongs_to" and isinstance(record, TrailRecord) and record.state in ENDED:
            yield f"the trail {id!r} is {record.state}, and still has the crumb {start!r}"


def _check_cardinality(starts: Any, triples: Any, link_type: str, start: str, end: str) -> Iterable[str]:
    if triples[link_type, start, end] > 1:
        yield f"{start!r} {link_type} {end!r} exists more than once"
    elif LINK_RULES[link_type].single and starts[link_type, start] > 1:
        yield f"cardinality: {start!r} has more than one {link_type} link"


def find_cycles(edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the nodes on cycles, each with the number of its connected component; in linear time."""
    above: dict[str, list[str]] = {}
    alone: set[str] = set()
    for start, end in edges:
        above.setdefault(start, []).append(end)
        if start == end:
            alone.add(start)
    found: dict[str, int] = {}
    for number, knot in enumerate(_components(above)):
        if len(knot) > 1 or knot[0] in alone:
            found |= dict.fromkeys(knot, number)
    return found


def _components(above: Mapping[str, list[str]]) -> Iterable[list[str]]:
    """Yield the strongly connected components of a graph (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in above:
        if root in index:
            continue
        work = [(root, iter(above[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, ends = work[-1]
            for end in ends:
                if end not in index:
                    index[end] = low[end] = len(index)
                    stack.append(end)
                    on_stack.add(end)
                    work.append((end, iter(above.get(end, ()))))
                    break
                if end in on_stack:
                    low[node] = min(low[node], index[end])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[str] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                    on_stack.difference_update(part)
                    yield part


def split_acyclic(
    edges: Iterable[tuple[str, str]], fixed: Iterable[tuple[str, str]]
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the edges that close no cycle, and those that do; `fixed` edges exist already.

    Edges between components close no cycle. Inside of a component they are tried in their order.
    """
    wanted, there = list(dict.fromkeys(edges)), set(fixed)
    knots = find_cycles([*wanted, *there])
    right: set[tuple[str, str]] = set()
    wrong: set[tuple[str, str]] = set()
    order = _Order(edge for edge in there if knots.get(edge[0], -1) == knots.get(edge[1], -2))
    for edge in wanted:
        start, end = edge
        inside = start in knots and knots[start] == knots.get(end)
        if edge in there or not inside or order.add(start, end):
            right.add(edge)
        else:
            wrong.add(edge)
    return right, wrong


class _Order:
    """A topological order of nodes, updated as edges are added (algorithm of Pearce and Kelly)."""

    def __init__(self, edges: Iterable[tuple[str, str]]) -> None:
        self._place: dict[str, int] = {}
        self._up: dict[str, set[str]] = {}
        self._down: dict[str, set[str]] = {}
        for start, end in edges:
            self.add(start, end)

    def add(self, start: str, end: str) -> bool:
        """Add an edge; False if it would close a cycle."""
        for node in (end, start):
            self._place.setdefault(node, len(self._place))
        low, high = self._place[start], self._place[end]
        if low >= high:  # against the order: reorder the nodes between the two
            above = self._reach(end, self._up, lambda place: place <= low)
            if start in above:
                return False
            below = self._reach(start, self._down, lambda place: place >= high)
            moved = [*sorted(below, key=self._place.__getitem__), *sorted(above, key=self._place.__getitem__)]
            places = sorted(self._place[node] for node in moved)
            self._place.update(zip(moved, places, strict=True))
        self._up.setdefault(start, set()).add(end)
        self._down.setdefault(end, set()).add(start)
        return True

    def _reach(self, node: str, edges: Mapping[str, set[str]], within: Any) -> set[str]:
        seen, todo = {node}, [node]
        while todo:
            for other in edges.get(todo.pop(), ()):
                if other not in seen and within(self._place[other]):
                    seen.add(other)
                    todo.append(other)
        return seen
