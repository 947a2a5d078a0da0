"""A datum made ready for writing: its tags, which are encoded once for all records that have them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from dgent import Datum
from dgent.store.backend import Commit, Delete, Op, Put
from dgent.store.engine.commit import prepare
from dgent.store.engine.row import encode_datum


class Mood(StrEnum):
    CALM = "calm-as-a-test"


@pytest.mark.parametrize("tags", [["b", "a", "b"], ("a", "b"), {"a", "b"}, frozenset(("b", "a"))])
def test_tags_of_any_collection(tags: Any) -> None:
    made = encode_datum(Datum(id="x", tags=tags), "me", plain=True)
    assert (made.tags, made.tag_list) == ('["a","b"]', ("a", "b"))


def test_no_tags() -> None:
    made = encode_datum(Datum(id="x"), "me", plain=True)
    assert (made.tags, made.tag_list) == ("[]", ())


def test_members_of_an_enum_become_their_texts_for_whoever_comes_next() -> None:
    first = encode_datum(Datum(id="x", tags=frozenset({Mood.CALM})), "me", plain=True)
    second = encode_datum(Datum(id="y", tags=frozenset({"calm-as-a-test"})), "me", plain=True)
    for made in (first, second):
        assert made.tags == '["calm-as-a-test"]'
        assert [type(tag) for tag in made.tag_list] == [str]


_RICH = Datum(
    "a", data={"b": 1, "a": "ü"}, tags=frozenset({"y", "x"}), extra={"z": 1, "y": 2}, content=b"raw"
)


@pytest.mark.parametrize(
    ("ops", "digest"),
    [
        ((Put(_RICH, expect=3), Delete("b")), "8151410a6933d7e0c143c75cf59e035e"),
        ((Delete("b"),), "a4a0a724c15d4e853d01e268bafb45d3"),
    ],
)
def test_the_digest_of_a_keyed_commit_never_changes(ops: tuple[Op, ...], digest: str) -> None:
    """Stores keep it, and know by it whether a key is used again for something else."""
    found = prepare(Commit(ops, author="ann", key="k")).digest
    assert found is not None and found.hex() == digest
