"""Make the blocking twin of an async class, from the class itself."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from dgent.sync import wording
from dgent.sync.home import WAITS, LoopHome
from dgent.sync.stream import Stream

if TYPE_CHECKING:
    from dgent.sync.home import LoopHome


class Stay:
    """One task of the loop that enters a manager, waits until a block is over, and leaves it.

    Everything is touched on the loop only. It holds no reference to the `Entering`, which can therefore be
    garbage-collected.
    """

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        self._task: asyncio.Task[bool | None] | None = None
        self._entered: asyncio.Future[Any]
        self._left: asyncio.Future[BaseException | None]

    async def begin(self) -> Any:
        """Enter; returns what the manager gives."""
        loop = asyncio.get_running_loop()
        self._entered, self._left = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._main(), name="dgent-block")
        self._task.add_done_callback(_retrieve_error)
        await asyncio.wait([self._task, self._entered], return_when=asyncio.FIRST_COMPLETED)
        return self._entered.result() if self._entered.done() else self._task.result()

    async def finish(self, error: BaseException | None) -> bool | None:
        """Leave; returns whether the manager has dealt with the error."""
        assert self._task is not None
        self.release(error)
        await asyncio.wait([self._task])  # it goes on to its end, also when the thread is interrupted
        return self._task.result()

    def release(self, error: BaseException | None) -> None:
        """Have it leave by itself."""
        if self._task is not None and not self._left.done():
            self._left.set_result(error)

    def give_up(self) -> None:
        """Have it leave as if the block were cancelled; an entering under way is completed before."""
        self.release(asyncio.CancelledError())

    async def _main(self) -> bool | None:
        self._entered.set_result(await self._manager.__aenter__())
        try:
            error = await self._left
        except asyncio.CancelledError as cut:
            if not await self._manager.__aexit__(type(cut), cut, cut.__traceback__):
                raise
            return None
        if error is None:
            return await self._manager.__aexit__(None, None, None)
        return await self._manager.__aexit__(type(error), error, error.__traceback__)


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # raised where the block is left, if anybody still leaves it


class Entering(AbstractContextManager[Any]):
    """The context manager that `with` enters in place of `async with`.

    As in async code, all work of the manager belongs to one task. If that fails while the block runs, the
    thread cannot be stopped; the error is raised at the end of the block.
    """

    def __init__(
        self, home: LoopHome, manager: AbstractAsyncContextManager[Any], wrap: Callable[[Any], Any]
    ) -> None:
        self._home = home
        self._wrap = wrap
        self._stay = Stay(manager)
        self._inside = False

    def __enter__(self) -> Any:
        call = self._home.begin()
        self._inside = True
        try:
            return self._wrap(call.run(self._stay.begin))
        except BaseException:  # perhaps interrupted when it was entered already
            self._inside = False
            self._home.runner.submit_quietly(self._stay.give_up)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._inside = False
        try:
            return self._home.begin().run(self._stay.finish, error)
        except BaseException:  # perhaps interrupted before it was left; how the block ended is known
            self._home.runner.submit_quietly(self._stay.release, error)
            raise

    def __del__(self) -> None:
        if self._inside:
            self._home.runner.submit_quietly(self._stay.give_up)


Function = Callable[..., Any]

MODULE = "dgent.sync"

_DUNDERS = {
    "__init__": "__init__",
    "__repr__": "__repr__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
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


def has_twin(source: type) -> bool:
    """Return whether there is a blocking twin of a class."""
    return source in _TWINS


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
    name = function.__name__

    def method(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        home, source = self._home, self._source
        if "tx" in kwargs:
            kwargs["tx"] = _unwrap(kwargs["tx"])
        # A port of storage has its calls guarded by the storage machine, each by an attribute of its own.
        own = getattr(source, "__dict__", {}).get(name)
        if own is not None:
            return wrap(home.begin().run(own, *args, **kwargs), home, self)
        return wrap(home.begin().run(function, source, *args, **kwargs), home, self)

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
