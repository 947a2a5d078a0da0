"""Tools for models in code without an event loop: `from dgent.sync.tools import Toolbox`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from dgent import tools
from dgent.errors import InputError
from dgent.sync.blocks import Library
from dgent.sync.twin import Twin, make_twin
from dgent.sync.universe import Universe

__all__ = ["Toolbox"]


def _init(self: Twin, source: Any, *, rooms: Iterable[str] | None = None) -> None:
    if not isinstance(source, Library | Universe):
        raise InputError(
            f"this Toolbox takes a Library or a Universe of dgent.sync, not a {type(source).__name__}",
            hint="with dgent.open use dgent.tools",
        )
    self._source = tools.Toolbox(source._source, rooms=rooms)
    self._home = source._home


def _functions(self: Twin) -> dict[str, Callable[..., Any]]:
    """Return the tools by name, as functions whose signatures say what they take."""
    return {name: _blocking(self, function) for name, function in self._source.functions().items()}


def _blocking(self: Twin, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return self._home.begin().run(function, *args, **named)

    return call


Toolbox = make_twin(tools.Toolbox, instead={"__init__": _init, "functions": _functions}, module=__name__)
