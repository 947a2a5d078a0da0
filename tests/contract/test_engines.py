"""Every contract class over every engine, bare and scrambled."""

from __future__ import annotations

import inspect

import dgent.testing
from dgent.testing import CONTRACTS
from tests.contract.columns import COLUMNS, REMOTE
from tests.contract.known_gaps import GAPS

for _column in COLUMNS:
    for _contract in CONTRACTS:
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
