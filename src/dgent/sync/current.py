"""The universe of this process, for blocking code that is not handed one."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from dgent.errors import NoUniverse
from dgent.sync.twin import Twin, copy_signature, wrap
from dgent.universe import current

# Apart from the async one: a universe belongs to one loop, and only one of the two could use it.
_current: Twin | None = None


def set_universe(universe: Any) -> Any:
    """Set the universe of this process; returns the one before."""
    global _current
    before, _current = _current, universe
    return before


def get_universe() -> Any:
    """Return the universe of this process; raises NoUniverse if none is set."""
    if _current is None:
        raise NoUniverse("no universe is set for this process", hint="call `sync.set_universe(u)` first")
    return _current


def _make_method(name: str, function: Any) -> Any:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        home = self.data._home
        holder = SimpleNamespace(data=self.data._source)  # the async method asks only for its universe
        return wrap(home.begin().run(function, holder, *args, **kwargs), home)

    return copy_signature(method, function, f"DataMixin.{name}")


def _body() -> dict[str, Any]:
    members = vars(current.DataMixin).items()
    made = {
        name: _make_method(name, member) for name, member in members if inspect.iscoroutinefunction(member)
    }
    data = property(lambda _self: get_universe(), doc=current.DataMixin.data.__doc__)
    return {"__doc__": current.DataMixin.__doc__, "__module__": "dgent.sync", **made, "data": data}


DataMixin: Any = type("DataMixin", (), _body())
