"""Every contract class over every engine, bare and scrambled; the largest of them not on every column."""

from __future__ import annotations

import inspect
import itertools

import dgent.testing
from dgent.testing import CONTRACTS
from tests.contract.columns import COLUMNS, READING, REMOTE, Column
from tests.contract.known_gaps import GAPS
from tests.soak import SOAK

_READS = {"QueryContract", "OrderContract", "UpdateContract"}
_LARGE = {*_READS, "IndexContract", "HistoryContract", "ConcurrencyContract"}
"""The contracts of hundreds of records: they take three quarters of the time."""


def _is_run(column: Column, contract: type) -> bool:
    """Tell whether a short look has this pair; a long one has them all.

    Behind the wrapper every engine runs the small contracts here and random programs in test_machine and
    test_differential, and SQLite runs the large ones too. The durability decides how a commit is written,
    and not what is read.
    """
    if column.wrapped and column.setting.name != "sqlite":
        return SOAK > 1 or contract.__name__ not in _LARGE
    return SOAK > 1 or column.name != "relaxed" or contract.__name__ not in _READS


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
    assert {contract.__name__ for contract in CONTRACTS} >= _LARGE
