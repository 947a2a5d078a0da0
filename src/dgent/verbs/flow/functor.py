"""Verbs for functors, the ways to give any agent a new ability."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dgent.errors import InputError, NotFound
from dgent.flow.functor import FunctorLawResult, verify_functor
from dgent.flow.shipped import functors
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, option, verb


class VerifyFunctor(Ask):
    """Input of `functor.verify`."""

    name: Annotated[str | None, argument("the functor, such as state or flux")] = None
    all: Annotated[bool, option("check every functor")] = False


class FunctorLaw(msgspec.Struct, frozen=True):
    """A law of a functor: whether it held, and for which input it did not."""

    functor: str
    result: FunctorLawResult


class FunctorLaws(msgspec.Struct, frozen=True):
    """The laws of some functors."""

    healthy: bool
    items: list[FunctorLaw]


@verb("functor.verify", effect="read", errors=(InputError, NotFound))
async def verify(context: Context, ask: VerifyFunctor) -> FunctorLaws:
    """Look for inputs that break the laws of a functor, and show the smallest."""
    known = functors()
    if (ask.name is None) != ask.all:
        names = ", ".join(sorted(name.lower() for name in known.all_functors()))
        raise InputError("name one functor, or say --all", hint=f"there are: {names}", field="name")
    chosen = list(known.all_functors().values()) if ask.name is None else [known.get(ask.name)]
    items: list[FunctorLaw] = []
    for done, functor in enumerate(chosen):
        context.report(done, len(chosen))
        report = await verify_functor(functor)
        items += [FunctorLaw(functor.name, law) for law in (report.identity_law, report.composition_law)]
    return FunctorLaws(all(each.result.passed for each in items), items)
