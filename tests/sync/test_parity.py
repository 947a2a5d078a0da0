"""Everything the async classes can do, the blocking ones can, with the same parameters."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import dgent
from dgent import sync
from dgent.store.memory.backend import MemoryBackend
from dgent.sync import wording
from dgent.universe import collection, current, focus, transaction, universe, vectors
from tests.sync.marks import MARK, Mark

PAIRS = [
    (universe.Universe, sync.Universe),
    (transaction.Transaction, sync.Transaction),
    (collection.Collection, sync.Collection),
    (vectors.Vectors, sync.Vectors),
    (focus.Focus, sync.Focus),
    (current.DataMixin, sync.DataMixin),
]
SAME = {"__init__": "__init__", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def members(kind: type) -> dict[str, Any]:
    """What a class has, and its bases."""
    return {name: member for base in reversed(kind.__mro__[:-1]) for name, member in vars(base).items()}


def public(kind: type) -> list[str]:
    """The names of a class that are for everyone."""
    return [name for name in members(kind) if not name.startswith("_") or name in SAME]


METHODS = [
    pytest.param(a, b, name, id=f"{a.__name__}.{name}")
    for a, b in PAIRS
    for name in public(a)
    if inspect.isfunction(members(a)[name])
]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_public_name_is_there_and_no_other(theirs: type, ours: type) -> None:
    wanted = {SAME.get(name, name) for name in public(theirs)}
    found = {name for name in vars(ours) if not name.startswith("_") or name in SAME.values()}
    assert found == wanted
    assert ours.__name__ == theirs.__name__
    assert ours.__module__ == "dgent.sync"


@pytest.mark.parametrize(("theirs", "ours", "name"), METHODS)
def test_the_parameters_are_the_same(theirs: type, ours: type, name: str) -> None:
    before = inspect.signature(getattr(theirs, name)).parameters
    method = getattr(ours, SAME.get(name, name))
    after = inspect.signature(method).parameters
    assert list(after) == list(before)
    for parameter in before.values():
        same = after[parameter.name]
        assert (same.kind, same.default) == (parameter.kind, parameter.default)
        # Only a function of the caller's differs: it is awaited there, and not here.
        assert same == parameter or same.annotation == wording.plain(parameter.annotation)
    assert not inspect.iscoroutinefunction(method)
    assert not inspect.isasyncgenfunction(method)


@pytest.mark.parametrize(("theirs", "ours", "name"), METHODS)
def test_the_documentation_is_kept_and_speaks_of_no_loop(theirs: type, ours: type, name: str) -> None:
    before, after = getattr(theirs, name).__doc__, getattr(ours, SAME.get(name, name)).__doc__
    assert (after is None) == (before is None)
    for word in ("async", "await", "event loop"):
        assert word not in (after or "") + (ours.__doc__ or "")


def test_remember_reads_exactly_like_the_async_one() -> None:
    ours, theirs = sync.Universe.remember, universe.Universe.remember
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__doc__ == theirs.__doc__
    assert ours.__qualname__ == "Universe.remember"


def test_callbacks_and_iterators_read_as_what_they_are() -> None:
    assert inspect.signature(sync.Universe.transact).parameters["work"].annotation == (
        "Callable[[Transaction], R]"
    )
    assert inspect.signature(sync.Focus.modify).parameters["change"].annotation == "Callable[[A], A]"
    assert inspect.signature(sync.Universe.watch).return_annotation == "Stream[Change]"


def test_the_functions_take_the_same() -> None:
    for name in ("open", "get_universe", "set_universe", "copy"):
        ours, theirs = inspect.signature(getattr(sync, name)), inspect.signature(getattr(dgent, name))
        assert list(ours.parameters) == list(theirs.parameters)
        kinds = [(p.kind, p.default) for p in theirs.parameters.values()]
        assert [(p.kind, p.default) for p in ours.parameters.values()] == kinds


def test_one_import_is_enough() -> None:
    assert set(dgent.__all__) <= set(sync.__all__)
    same = (
        set(dgent.__all__)
        - {kind.__name__ for _, kind in PAIRS}
        - {
            "copy",
            "open",
            "get_universe",
            "set_universe",
        }
    )
    for name in same:
        assert getattr(sync, name) is getattr(dgent, name)
    assert sorted(sync.__all__) == sync.__all__


def test_attributes_pass_through(u: Any) -> None:
    assert u.author == "scout"
    assert u.backend.name in ("memory", "sqlite")
    assert u.contracts.by_name("mark") is MARK
    assert u.collection(Mark).schema is MARK
    assert {"author", "backend", "contracts", "remember"} <= set(dir(u))
    assert repr(u) == f"<Universe {u.backend.name} open>"
    for name in ("nothing", "_nothing"):
        with pytest.raises(AttributeError):
            getattr(u, name)


def test_the_classes_can_be_used_directly() -> None:
    with sync.Universe(MemoryBackend(), author="me") as u:
        u.register(MARK)
        marks: Any = sync.Collection[Mark](u, Mark)
        assert marks.remember(Mark("a")).author == "me"
        with sync.Transaction(u, "why") as tx:
            tx.remember(Mark("b"), id="b")
        assert u.history("b")[0].note == "why"
        assert marks.count() == 2


def test_importing_it_starts_nothing() -> None:
    code = "import threading; from dgent import sync; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_copy_and_a_mirror_without_a_loop() -> None:
    seen: list[int] = []
    with sync.open("memory:") as source, sync.open("memory:") as target:
        source.put_many([dgent.Datum(id=f"m{n}") for n in range(3)])
        done = sync.copy(source, target, progress=lambda done, total: seen.append(done))
        assert (done.records, done.commits, seen[-1]) == (3, 1, 1)
        with sync.mirror(source, target) as following:
            assert next(following) == done.seq
            source.put(dgent.Datum(id="later"))
            assert next(following) == done.seq + 1
            assert target.exists("later")
