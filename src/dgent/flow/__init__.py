"""Agents that compose, keep a state that lasts, and take streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.flow.agent import Agent, Id
    from dgent.flow.buffer import FluxStats
    from dgent.flow.flux import DEAD_LETTER, Flux, FluxAgent, FluxConfig, FluxPipeline, FluxState
    from dgent.flow.functor import (
        Functor,
        FunctorLawResult,
        FunctorRegistry,
        FunctorVerificationReport,
        verify_composition_law,
        verify_functor,
        verify_identity_law,
    )
    from dgent.flow.shipped import functors
    from dgent.flow.source import Source
    from dgent.flow.state import StatefulAgent, StateFunctor, Symbiont
    from dgent.model.category import AGENT_MEMORY, Category

_HOME = {
    "AGENT_MEMORY": "dgent.model.category",
    "Agent": "dgent.flow.agent",
    "Category": "dgent.model.category",
    "DEAD_LETTER": "dgent.flow.flux",
    "Flux": "dgent.flow.flux",
    "FluxAgent": "dgent.flow.flux",
    "FluxConfig": "dgent.flow.flux",
    "FluxPipeline": "dgent.flow.flux",
    "FluxState": "dgent.flow.flux",
    "FluxStats": "dgent.flow.buffer",
    "Functor": "dgent.flow.functor",
    "FunctorLawResult": "dgent.flow.functor",
    "FunctorRegistry": "dgent.flow.functor",
    "FunctorVerificationReport": "dgent.flow.functor",
    "Id": "dgent.flow.agent",
    "Source": "dgent.flow.source",
    "StateFunctor": "dgent.flow.state",
    "StatefulAgent": "dgent.flow.state",
    "Symbiont": "dgent.flow.state",
    "functors": "dgent.flow.shipped",
    "verify_composition_law": "dgent.flow.functor",
    "verify_functor": "dgent.flow.functor",
    "verify_identity_law": "dgent.flow.functor",
}

__all__ = [
    "AGENT_MEMORY",
    "DEAD_LETTER",
    "Agent",
    "Category",
    "Flux",
    "FluxAgent",
    "FluxConfig",
    "FluxPipeline",
    "FluxState",
    "FluxStats",
    "Functor",
    "FunctorLawResult",
    "FunctorRegistry",
    "FunctorVerificationReport",
    "Id",
    "Source",
    "StateFunctor",
    "StatefulAgent",
    "Symbiont",
    "functors",
    "verify_composition_law",
    "verify_functor",
    "verify_identity_law",
]

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
