"""Import, export and import again: the same cupboard, and the same values."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cupboard.exchange.folders import FOLDERS, TIMES, VALUES, Folder, lines, through, values, write
from tests.scratch import find_memory
from tests.soak import examples


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(FOLDERS)
def test_whatever_a_folder_holds_it_comes_out_and_in_as_the_same(folder: Folder) -> None:
    with tempfile.TemporaryDirectory(dir=find_memory()) as base:
        source, first, second = (Path(base, name) for name in ("source", "first", "second"))
        write(source, folder)
        one, done, again = asyncio.run(through(source, first))
        assert (again.added, again.changed, again.seq) == (0, 0, None), "a second import changes nothing"
        two, _, _ = asyncio.run(through(first, second))
        assert lines(first) == lines(second)
        assert one == two
        assert done.dry_run is False


ANYTHING = TIMES | VALUES
CRUMBS = st.lists(
    st.fixed_dictionaries(
        {"crumb_id": st.sampled_from("abc"), "name": st.text(min_size=1, max_size=3)},
        optional=dict.fromkeys(
            ("state", "created_at", "updated_at", "defer_until", "holder", "lease_until", "token", "colour"),
            ANYTHING,
        ),
    ),
    max_size=3,
    unique_by=lambda row: row["crumb_id"],
)
DEFAULTS = {"token": 0}  # not written when it is this
NO_TIME = (None, "", "0001-01-01T00:00:00Z")


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(CRUMBS)
def test_no_value_of_a_crumb_is_lost(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory(dir=find_memory()) as base:
        asyncio.run(through(write(Path(base, "in"), {"crumbs": rows}), Path(base, "out")))
        found = {each["crumb_id"]: each for each in lines(Path(base, "out"))["crumbs.jsonl"]}
    for row in rows:
        out = found[row["crumb_id"]]
        for field, value in row.items():
            if value not in NO_TIME:
                # A value that does not fit its field stands beside it.
                beside = out.get("dgent:file", {}).get(field, out.get(field))
                assert values(value) in (out.get(field, DEFAULTS.get(field)), beside), field


def test_lines_that_fit_no_stash_are_odd_alike_in_whatever_order(tmp_path: Path) -> None:
    moment = "2026-02-12T08:15:00Z"
    told = {"stash_id": "s1", "value": None, "operation": "set", "changed_by": "a", "created_at": moment}
    stash = {
        "stash_id": "s1",
        "name": "n",
        "value": 1,
        "stash_type": "counter",
        "version": 1,
        "created_at": moment,
        "updated_at": moment,
        "properties": {},
    }
    history = [{**told, "history_id": f"h{n}", "version": 1 + n // 2} for n in (3, 2, 1, 0)]
    folder = {"stashes": [stash], "stash_history": history}
    one, _, _ = asyncio.run(through(write(tmp_path / "source", folder), tmp_path / "first"))
    assert sorted(each[1].reason for id, each in one.items() if "/line/" in id) == [
        *["its stash has another value in this version"] * 2,
        *["its stash is only at version 1"] * 2,
    ]
