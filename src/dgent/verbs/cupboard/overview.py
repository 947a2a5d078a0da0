"""Verbs that look at the cupboard as a whole: trails side by side, the graph, the audit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dgent.cupboard.compare import Side
from dgent.cupboard.graph import Graph
from dgent.errors import Conflict, NotFound
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.cupboard import input
from dgent.verbs.cupboard.answer import Crumb, StashInfo, TrailInfo, crumb_of, stash_of, trail_of
from dgent.verbs.registry import Ask, PastAsk, argument, option, verb


class Compare(Ask):
    """Input of `trail.compare`."""

    a: Annotated[str, argument("a trail: its id, the beginning of it, or its name", complete="trail")]
    b: Annotated[str, argument("the other trail", complete="trail")]


class TrailSide(msgspec.Struct, frozen=True):
    """A trail as it is, or as it was when it ended; `known` is False when that history is gone."""

    trail: TrailInfo
    counts: dict[str, int]
    crumbs: list[Crumb]
    stashes: list[StashInfo]
    branches_from: str | None
    known: bool


class TrailComparison(msgspec.Struct, frozen=True):
    """Two trails side by side; `differences` are the properties that differ, as pairs of values."""

    a: TrailSide
    b: TrailSide
    properties: dict[str, list[Any]]
    differences: list[str]
    stashes: dict[str, list[Any]]


@verb("trail.compare", effect="read", errors=(NotFound,))
async def compare(context: Context, ask: Compare) -> TrailComparison:
    """Show two trails side by side, ended ones as they were."""
    cupboard = await input.cupboard_of(context)
    ids = [await input.id_of(cupboard, "trails", each) for each in (ask.a, ask.b)]
    found = await cupboard.compare(*ids)
    return TrailComparison(
        _side(found.a),
        _side(found.b),
        {name: list(pair) for name, pair in found.properties.items()},
        list(found.differences),
        {name: list(pair) for name, pair in found.stashes.items()},
    )


def _side(side: Side) -> TrailSide:
    return TrailSide(
        trail_of(side.trail),
        side.counts,
        [crumb_of(each) for each in side.crumbs],
        [stash_of(each, side.trail.id) for each in side.stashes],
        side.branches_from,
        side.known,
    )


class ShowGraph(PastAsk):
    """Input of `cupboard.graph`."""

    trail: Annotated[str | None, option("only this trail", complete="trail")] = None
    form: Annotated[Literal["mermaid", "dot"], option("how it is drawn", short="f")] = "mermaid"


class GraphText(msgspec.Struct, frozen=True):
    """The graph, and its drawing as text."""

    graph: Graph
    text: str


@verb("cupboard.graph", effect="read", errors=(NotFound,))
async def graph(context: Context, ask: ShowGraph) -> GraphText:
    """Draw crumbs, trails and stashes with their links."""
    cupboard = await input.cupboard_of(context, ask.as_of)
    trail = None if ask.trail is None else await input.id_of(cupboard, "trails", ask.trail)
    found = await cupboard.graph(trail)
    return GraphText(found, found.dot() if ask.form == "dot" else found.mermaid())


class Examine(Ask):
    """Input of `cupboard.audit`."""

    repair: Annotated[bool, option("do what it suggests, where nobody must decide")] = False


def _only_looks(ask: Examine) -> Effect | None:
    """Only reads without repair."""
    return None if ask.repair else "read"


class Breach(msgspec.Struct, frozen=True):
    """A violation of a rule, and how to repair it."""

    rule: str
    ids: list[str]
    text: str
    suggestion: str
    repaired: bool


class AuditReport(msgspec.Struct, frozen=True):
    """The findings of an audit, and the numbers of crumbs on trails, permanent ones, and ones on no trail.

    `seq` is the commit that repaired something; undoing it takes that back.
    """

    healthy: bool
    findings: list[Breach]
    on_trail: int
    permanent: int
    orphan: int
    seq: int | None = None


@verb("cupboard.audit", effect="write", errors=(Conflict,), lighter=_only_looks)
async def audit(context: Context, ask: Examine) -> AuditReport:
    """Check the cupboard against its rules, and repair it."""
    cupboard = await input.cupboard_of(context)
    found = await cupboard.audit()
    seq = await cupboard.repair(found.findings) if ask.repair and found.findings else None
    left = {(each.rule, each.ids) for each in (await cupboard.audit()).findings} if ask.repair else None
    breaches = [
        Breach(
            each.rule,
            list(each.ids),
            each.text,
            each.suggestion,
            left is not None and (each.rule, each.ids) not in left,
        )
        for each in found.findings
    ]
    healthy = all(each.repaired for each in breaches)
    return AuditReport(healthy, breaches, len(found.on_trail), len(found.permanent), len(found.orphan), seq)
