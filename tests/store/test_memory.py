"""The engine in memory: walking an index copies little of it, and goes on while others write."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import pytest

from dgent.store.engine.kernel import IndexScan
from dgent.store.engine.row import Row
from dgent.store.memory.backend import MemoryKernel

MANY = 20_000
ALL = IndexScan(1, (b"", 0, 0), (b"z", 0, 0))


def _row(number: int) -> Row:
    return Row(number, f"r{number}", 1, 1, 1, 0, 0, 0, 0, 0, None, None, "[]", 0, None, None, b"{}", None)


def _filled(count: int) -> MemoryKernel:
    kernel = MemoryKernel()
    kernel.insert([_row(number) for number in range(count)])
    kernel.add_entries([(1, b"k", number, number) for number in range(count)])
    return kernel


def _walked(kernel: MemoryKernel, descending: bool) -> list[int]:
    return [row.record_key for _, row in kernel.walk(ALL, descending, True)]


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 80, 81, 3000])
def test_a_walk_has_each_entry_once_and_in_order(count: int, descending: bool) -> None:
    kernel = _filled(count)
    assert _walked(kernel, descending) == sorted(range(count), reverse=descending)


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
def test_the_first_entries_are_read_without_copying_the_index(descending: bool) -> None:
    kernel = _filled(MANY)
    tracemalloc.start()
    try:
        assert len(list(islice(kernel.walk(ALL, descending, True), 5))) == 5
        assert kernel.skip(ALL, descending, 5) is not None
        assert kernel.times([ALL], descending, 5) == [MANY - 6 if descending else 5]
        assert tracemalloc.get_traced_memory()[1] < MANY  # bytes; a copy has eight for each entry
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
def test_a_walk_goes_on_while_entries_come_and_go(descending: bool) -> None:
    kernel = _filled(1000)
    seen: list[int] = []
    for _, row in kernel.walk(ALL, descending, True):
        number = row.record_key
        seen.append(number)
        kernel.remove_entries([(1, b"k", number, number)])
        if number % 100 == 50:  # behind it
            kernel.add_entries([(1, b"k", 0 if not descending else 2000, number)])
    assert seen == sorted(range(1000), reverse=descending)
