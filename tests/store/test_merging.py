"""Merging three versions of a record: what one side did is taken, and what both did alike is not disputed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dgent.model.datum import Datum
from dgent.store.engine.merge import merge, says_the_same

AT = datetime(2026, 1, 1, tzinfo=UTC)
_values = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a", ["x"], ["x", "y"]]),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
_fields = st.fixed_dictionaries({}, optional=dict.fromkeys(("a", "b", "properties", "value"), _values))
_crumbs = st.fixed_dictionaries(
    {"name": st.sampled_from("xy"), "state": st.sampled_from(["ready", "taken", "pebble", "dust"])},
    optional={"holder": st.sampled_from([None, "ann"]), "token": st.integers(0, 3)},
)
_shapes = st.sampled_from(
    ["note", "cupboard.crumb", "cupboard.trail", "cupboard.stash", "cupboard.catalog", "cupboard.lease"]
)


@st.composite
def _three(draw: st.DrawFn) -> list[Datum | None]:
    schema = draw(_shapes)
    fields = _crumbs if schema == "cupboard.crumb" else _fields
    return [_version(schema, draw(fields), draw(st.sets(st.sampled_from("tuv")))) for _ in range(3)]


def _version(schema: str, data: dict[str, Any], tags: set[str]) -> Datum:
    return Datum("r", AT, data, tags=frozenset(tags), schema=schema, schema_version=1)


@given(_three())
def test_what_one_side_did_is_taken(versions: list[Datum | None]) -> None:
    base, changed, _ = versions
    if base is not None and base.schema in ("cupboard.catalog", "cupboard.lease"):
        return  # these are not anybody's words
    for left, right in ((base, changed), (changed, base)):
        merged = merge(base, left, right)
        assert merged.disputed == () and says_the_same(merged.version, changed, ("version",))
    for left, right in ((base, None), (None, base)):
        assert merge(base, left, right) == (None, ())


@given(_three())
def test_what_both_sides_did_alike_is_not_disputed(versions: list[Datum | None]) -> None:
    base, changed, _ = versions
    merged = merge(base, changed, changed)
    assert merged.disputed == ()
    if changed is not None and changed.schema in ("note", "cupboard.crumb", "cupboard.trail"):
        assert says_the_same(merged.version, changed)


@given(_three())
def test_fields_that_neither_disputes_come_from_the_side_that_changed_them(versions: list[Any]) -> None:
    base, left, right = versions
    if base.schema != "note":
        return
    merged = merge(base, left, right)
    assert merged.version is not None
    for name in {*base.data, *left.data, *right.data}:
        was, one, other = (each.data.get(name) for each in (base, left, right))
        if not any(path.split(".")[0] == name for path in merged.disputed) and repr(one) == repr(was):
            assert repr(merged.version.data.get(name)) == repr(other)
    kept = left.tags & right.tags
    assert kept <= merged.version.tags <= left.tags | right.tags
