"""Application tables for code without an event loop: `from dgent.sync.tables import Brain, connect`.

The services and the adapter of `dgent.tables`, which block until they are answered. Sessions of SQLAlchemy
stay with the event loop: blocking code runs SQL of its own with `u.storage.relational`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from dgent.errors import InputError, Unsupported
from dgent.sync.home import LoopHome
from dgent.sync.twin import Twin, copy_signature, make_twin
from dgent.sync.universe import Universe
from dgent.tables import adapter, brain, focus, gardener, halves, migrate, place, town

__all__ = [
    "Brain",
    "Gardener",
    "Place",
    "TableAdapter",
    "TableFocus",
    "Town",
    "connect",
    "ensure_migrations",
    "find_halves",
    "repair",
    "run_migrations",
]


def _twin(source: type, **instead: Any) -> Any:
    return make_twin(source, instead=instead, module=__name__)


def _refuse(self: Twin, tx: Any) -> NoReturn:
    raise Unsupported(
        "a session of SQLAlchemy needs an event loop",
        hint="use tx.execute for statements of a transaction, or dgent.open with asyncio",
    )


class _Sessions(Twin):
    """The factory of sessions of a place, to be given to a `TableAdapter`."""

    __slots__ = ()


def _stay(self: Twin) -> Any:
    return self


def _exit(self: Any, *_error: Any) -> None:
    self.close()


Place = _twin(place.Place, transaction=_refuse, __aenter__=_stay, __aexit__=_exit)
Place.sessions = property(
    lambda self: _Sessions._around(self._source.sessions, self._home), doc=_Sessions.__doc__
)
Brain = _twin(brain.Brain)
Town = _twin(town.Town)
Gardener = _twin(gardener.Gardener)
TableFocus = _twin(focus.TableFocus)
TableAdapter = _twin(adapter.TableAdapter)


def _connect(where: Any) -> Any:
    if isinstance(where, str):
        home: LoopHome = LoopHome(None)
        return Place._around(home.begin().run(place.connect, where), home)
    if not isinstance(where, Universe):
        raise InputError(
            f"connect takes a universe of dgent.sync or a URL, not a {type(where).__name__}",
            hint="with dgent.open use dgent.tables",
        )
    return Place._around(where._home.begin().run(place.connect, where._source), where._home)


def _function(source: Callable[..., Any]) -> Any:
    def call(*args: Any, **named: Any) -> Any:
        given = [each for each in (*args, *named.values()) if isinstance(each, Twin)]
        if not given:
            raise InputError(f"{source.__name__} takes a place of dgent.sync.tables")
        plain = [each._source if isinstance(each, Twin) else each for each in args]
        named = {name: each._source if isinstance(each, Twin) else each for name, each in named.items()}
        return given[0]._home.begin().run(source, *plain, **named)

    return copy_signature(call, source, source.__name__, __name__)


connect = copy_signature(_connect, place.connect, "connect", __name__)
ensure_migrations = _function(migrate.ensure_migrations)
run_migrations = _function(migrate.run_migrations)
find_halves = _function(halves.find_halves)
repair = _function(halves.repair)
