"""Named locks within one program: one task holds a name, others wait instead of conflicting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from weakref import WeakValueDictionary

from dgent.errors import InputError

_held: ContextVar[frozenset[str]] = ContextVar("dgent_held", default=frozenset())


class Names:
    """The named locks of one universe; a lock lives only while it is held or waited for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Hold a name; asking for it again in the same task would deadlock."""
        held = _held.get()
        if name in held:
            raise InputError(f"{name!r} is held already by the caller, so it would wait for itself")
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            token = _held.set(held | {name})
            try:
                yield
            finally:
                _held.reset(token)
