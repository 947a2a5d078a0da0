"""Make the blocking twin of an async class, from the class itself."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, Generic

from dgent.sync import wording
from dgent.sync.entering import Entering
from dgent.sync.home import WAITS, LoopHome
from dgent.sync.stream import Stream

Function = Callable[..., Any]

MODULE = "dgent.sync"

_DUNDERS = {
    "__init__": "__init__",
    "__repr__": "__repr__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}


class Twin:
    """An object that lives on the background loop, as seen from any other thread."""

    __slots__ = ("__weakref__", "_home", "_source")
    _home: LoopHome
    _source: Any

    @classmethod
    def _around(cls, source: Any, home: LoopHome) -> Any:
        twin = cls.__new__(cls)
        twin._source, twin._home = source, home
        return twin

    def __getattr__(self, name: str) -> Any:
        # Only what the instance itself holds comes here; all that is in the class has its twin.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return wrap(getattr(self._source, name), self._home)

    def __dir__(self) -> list[str]:
        public = (name for name in vars(self._source) if not name.startswith("_"))
        return sorted({*super().__dir__(), *public})


_TWINS: dict[type, type[Twin]] = {}


def wrap(value: Any, home: LoopHome, owner: Twin | None = None) -> Any:
    """Return the blocking form of a value from the loop."""
    if owner is not None and value is owner._source:
        return owner
    kind = _TWINS.get(type(value))
    if kind is not None:
        return kind._around(value, home)
    if type(value) is list and value and type(value[0]) in _TWINS:
        return [wrap(each, home, owner) for each in value]
    return Stream(home, value) if isinstance(value, AsyncIterator) else value


def make_twin(
    source: type,
    *,
    point_reads: Collection[str] = (),
    instead: Mapping[str, Any] | None = None,
    module: str = MODULE,
) -> Any:
    """Return the blocking twin of an async class; a subclass of the twins of its bases.

    `point_reads` names the methods that need not go to the loop when the engine reads on any thread;
    `instead` holds replacements of members; `module` is where users find it.
    """
    body: dict[str, Any] = {
        "__doc__": wording.blocking(source.__doc__ or ""),
        "__module__": module,
        "__slots__": (),
    }
    if Generic in source.__mro__:
        body["__class_getitem__"] = classmethod(types.GenericAlias)
    for name, member in _members(source).items():
        made = (instead or {}).get(name) or _make_member(source, name, member, name in point_reads)
        twin_name = _DUNDERS.get(name, name)
        if inspect.isfunction(made):
            made = copy_signature(made, member, f"{source.__name__}.{twin_name}", module)
        body[twin_name] = made
    bases = tuple(_TWINS[base] for base in source.__bases__ if base in _TWINS)
    _TWINS[source] = twin = type(source.__name__, bases or (Twin,), body)
    return twin


def copy_signature(method: Function, like: Function, qualname: str, module: str = MODULE) -> Function:
    """Return a method with the documentation and the parameters of the async one."""
    functools.update_wrapper(method, like)
    method.__doc__ = like.__doc__ and wording.blocking(like.__doc__)
    method.__module__, method.__qualname__ = module, qualname
    method.__name__ = qualname.rpartition(".")[2]
    # A traceback names the code, and a dozen lines "in method" would say nothing.
    method.__code__ = method.__code__.replace(co_name=method.__name__, co_qualname=qualname)
    method.__signature__ = wording.signature(like)  # type: ignore[attr-defined]
    return method


def _members(source: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(source.__mro__):
        if base not in (object, Generic) and base not in _TWINS:
            found.update(vars(base))
    return {name: member for name, member in found.items() if name in _DUNDERS or not name.startswith("_")}


def _make_member(source: type, name: str, member: Any, point_read: bool) -> Any:
    if name == "__init__":
        return _constructor(source)
    if isinstance(member, property):
        return property(lambda self: wrap(getattr(self._source, name), self._home), doc=member.__doc__)
    if inspect.iscoroutinefunction(member):
        called_back = wording.callbacks(member)
        if called_back:
            return _calling_back(member, called_back)
        return _reading(member) if point_read else _blocking(member)
    if not hasattr(type(member), "__get__"):
        return member  # a plain value, the same on either side
    if not inspect.isfunction(member):
        raise TypeError(f"{source.__name__}.{name} is of a kind that has no blocking form yet")
    if wording.is_context(member):
        return _entering(member)
    # What can be entered belongs to the loop from the start, so it is made there.
    enterable = {kind.__name__ for kind in _TWINS if hasattr(kind, "__aenter__")}
    return _blocking(_as_async(member)) if wording.returns(member) in enterable else _passing(member)


# -- the kinds of methods ---------------------------------------------------------------------


def _constructor(source: type) -> Function:
    def method(self: Twin, /, *args: Any, **kwargs: Any) -> None:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Twin)]
        self._source = source(*map(_unwrap, args), **{name: _unwrap(value) for name, value in kwargs.items()})
        self._home = given[0]._home if given else LoopHome(self._source)

    return method


def _unwrap(value: Any) -> Any:
    return value._source if isinstance(value, Twin) else value


def _as_async(function: Function) -> Function:
    async def call_function(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call_function


def _blocking(function: Function) -> Function:
    def method(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        home = self._home
        return wrap(home.begin().run(function, self._source, *args, **kwargs), home, self)

    return method


def _reading(function: Function) -> Function:
    def method(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        home = self._home
        if home.reads_now and kwargs.get("as_of") is None:
            found = home.now(function, (self._source, *args), kwargs)
            if found is not WAITS:
                return found
        return home.begin().run(function, self._source, *args, **kwargs)

    return method


def _calling_back(function: Function, names: Collection[str]) -> Function:
    signature = inspect.signature(function)

    def method(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        home = self._home
        call = home.begin()
        bound = signature.bind(self._source, *args, **kwargs)
        for name in names:
            if callable(work := bound.arguments.get(name)):
                bound.arguments[name] = call.asking(work, lambda value: wrap(value, home))
        return wrap(call.run(function, *bound.args, **bound.kwargs), home, self)

    return method


def _entering(function: Function) -> Function:
    def method(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        home = self._home
        manager = function(self._source, *args, **kwargs)
        return Entering(home, manager, lambda value: wrap(value, home))

    return method


def _passing(function: Function) -> Function:
    def method(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        return wrap(function(self._source, *args, **kwargs), self._home, self)

    return method
