"""A store as one tool call uses it: its commits have a key, and its records say what they came from.

It stands between a universe and its backend, as the gate does, so that no verb and no room has to know of it.
The first commit of a call has the key of the call, later ones have its number behind it: after a crash, the
store knows whether the call reached it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.errors import InputError
from dgent.store.backend import Backend, Commit, Committed, Op, Put, View
from dgent.universe.gate import Gate

if TYPE_CHECKING:
    from dgent.universe.universe import Universe


Mark = Callable[[str | None], str | None]
"""Returns the source that a record is stored with, for the one that it was given."""


class Stamp:
    """A backend whose commits have a key, and whose records have the source that `mark` gives them."""

    put_fresh = None  # a way around `commit`

    def __init__(self, inner: Backend, key: str | None, mark: Mark | None) -> None:
        self.inner, self.key, self.mark = inner, key, mark
        self._made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none, under the key of the call unless the commit has one."""
        ops = commit.ops if self.mark is None else [_mark(op, self.mark) for op in commit.ops]
        key = commit.key
        if key is None and self.key is not None:
            key = f"{self.key}/{self._made + 1}" if self._made else self.key
        done = await self.inner.commit(msgspec.structs.replace(commit, ops=ops, key=key), view)
        self._made += 1
        return done


def _mark(op: Op, mark: Mark) -> Op:
    if not isinstance(op, Put):
        return op
    return msgspec.structs.replace(op, datum=op.datum.replace(source=mark(op.datum.source)), raw=None)


def stamp_handle(universe: Universe, key: str | None = None, mark: Mark | None = None) -> Universe:
    """Return a handle whose commits have a key, and whose records say what they came from."""
    if isinstance(universe.backend, Gate):
        raise InputError("this handle acts for a principal", hint="stamp the handle that it was made of")
    backend: Any = Stamp(universe.backend, key, mark)
    return universe._twin(backend=backend)
