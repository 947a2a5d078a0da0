"""A column of crumbs is everywhere: whoever adds one to the record is told what else it needs."""

from __future__ import annotations

from dataclasses import fields

from dgent.cupboard.record import CrumbRecord
from dgent.cupboard.tables.crumb import Crumb as Entity
from dgent.exchange.foreign.fields import FILES
from dgent.verbs.cupboard.answer import Crumb as Answer

DERIVED = {"open_parents", "queue"}
COLUMNS = {each.name for each in fields(CrumbRecord)} - DERIVED
INNER = {"former_ids", "parts"}  # of short ids, for the cupboard itself


def test_every_column_is_in_the_entity() -> None:
    assert {each.name for each in fields(Entity)} >= COLUMNS - INNER
    assert set(Entity.OWN) <= COLUMNS


def test_every_column_is_in_the_answer() -> None:
    assert set(Answer.__struct_fields__) >= COLUMNS - INNER - {"extra"}


def test_every_column_is_in_the_files_of_an_export() -> None:
    """So that an export loses no value; what `extra` holds is written beside them."""
    assert {each.name for each in FILES["crumbs"]} >= COLUMNS - {"extra"}
