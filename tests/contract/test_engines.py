"""Every contract class over every engine; the columns that others prove run some of them in a short look."""

from __future__ import annotations

import inspect
import itertools

import dgent.testing
from dgent.testing import CONTRACTS
from tests.contract.columns import COLUMNS, READING, REMOTE, Column
from tests.contract.known_gaps import GAPS
from tests.soak import SOAK

_ALWAYS = {
    "relaxed": {"BasicContract", "TransactionContract", "ConcurrencyContract", "LifecycleContract"},
    "memory_scrambled": {"BasicContract", "VersionContract", "SchemaContract"},
    "jsonl_scrambled": {"BasicContract", "VersionContract", "SchemaContract", "LifecycleContract"},
    "postgres_scrambled": {"BasicContract", "VersionContract", "SchemaContract", "LifecycleContract"},
}
"""The contracts that a short look runs on a column which others prove: a long one runs them all."""


def _is_run(column: Column, contract: type) -> bool:
    """Tell whether this look has the pair.

    Every engine runs every contract bare, and SQLite also behind the wrapper. The wrapper is the same for
    all, and random programs run behind it on every engine in test_machine and test_differential. The
    durability decides how a commit is written, and not what is read.
    """
    return SOAK > 1 or contract.__name__ in _ALWAYS.get(column.name, {contract.__name__})


for _column, _contract in itertools.product(COLUMNS, CONTRACTS):
    if _is_run(_column, _contract):
        _name = f"Test{_contract.__name__.removesuffix('Contract')}_{_column.name}"
        globals()[_name] = type(
            _name,
            (_contract,),
            {"persistent": _column.setting.persistent, "column": _column, "contract": _contract},
        )


def test_every_exported_contract_is_run() -> None:
    exported = {name for name in dgent.testing.__all__ if name.endswith("Contract")}
    assert {contract.__name__ for contract in CONTRACTS} == exported


def test_every_gap_names_a_test_that_exists() -> None:
    columns = {column.name for column in (*COLUMNS, REMOTE)}
    tests = {
        f"{contract.__name__}.{name}"
        for contract in CONTRACTS
        for name, _ in inspect.getmembers(contract, inspect.isfunction)
        if name.startswith("test_")
    }
    assert {column for column, _ in GAPS} <= columns
    assert {test for _, test in GAPS} <= tests


def test_every_contract_is_run_bare_on_every_engine_and_behind_the_wrapper() -> None:
    for contract in CONTRACTS:
        run = {column.name for column in COLUMNS if _is_run(column, contract)}
        assert {*(column.name for column in READING), "sqlite_scrambled"} <= run, contract
    assert {contract.__name__ for contract in CONTRACTS} >= set().union(*_ALWAYS.values())
    assert {column.name for column in COLUMNS}.issuperset(_ALWAYS)
