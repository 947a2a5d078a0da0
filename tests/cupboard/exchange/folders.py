"""Folders of the original program, as hostile as they can be; and what a cupboard holds of one."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import dgent
from dgent.cupboard import Cupboard
from dgent.cupboard.record import SCHEMAS
from dgent.exchange.foreign import ImportResult, export_folder, import_folder

Folder = dict[str, list[Any]]

MOMENT = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")

IDS = st.sampled_from(["a", "b", "c", "0195a0f3-7c00-7000-8000-00000000000a", "", 7, None])
TIMES = st.sampled_from(
    [
        "2026-02-12T08:15:00Z",
        "2026-02-12T03:15:00.5-05:00",
        "2026-02-12T08:15:00.123456789Z",
        "0001-01-01T00:00:00Z",
        "yesterday",
        "",
        None,
        5,
    ]
)
NAMES = st.sampled_from(["priority", "type", "high", "task", "labels", "size", "n", "", "Ünï", None])
VALUES = st.sampled_from(
    [None, 0, 5, 2.0, True, "", "5", '"x"', '"\\"x\\""', "null", "[]", '{"value": 1}', {"value": 1}, ["x"]]
) | st.text(max_size=3)
TYPES = st.sampled_from(["text", "integer", "list", "categorical", "timestamp", "boolean", "odd"])


def _rows(**fields: Any) -> st.SearchStrategy[list[Any]]:
    """Lines with these fields, each of which may be missing, or spelt otherwise; or no such lines at all."""
    odd = {"colour": VALUES, "dgent:file": VALUES}
    snake = st.fixed_dictionaries(fields, optional=odd) | st.fixed_dictionaries(
        {}, optional={**fields, **odd}
    )
    pascal = snake.map(lambda row: {_pascal(key): value for key, value in row.items()})
    both = st.builds(lambda one, other: {**one, **other}, snake, pascal)
    return st.lists(
        st.one_of(snake, snake, pascal, both, st.sampled_from(["no line", [], '{"a":', "\udcff"])), max_size=4
    )


def _pascal(key: str) -> str:
    return "".join(part.title() for part in key.split("_")).replace("Id", "ID")


FOLDERS: st.SearchStrategy[Folder] = st.fixed_dictionaries(
    {
        "crumbs": _rows(
            crumb_id=IDS,
            name=NAMES,
            state=st.sampled_from(["ready", "pebble", "open", "odd", None]),
            created_at=TIMES,
            updated_at=TIMES,
            properties=st.dictionaries(NAMES.filter(bool), VALUES, max_size=2),
            holder=VALUES,
            token=VALUES,
        ),
        "trails": _rows(
            trail_id=IDS,
            state=st.sampled_from(["active", "completed", "odd"]),
            created_at=TIMES,
            updated_at=TIMES,
            completed_at=TIMES,
            goal=VALUES,
            crumbs=VALUES,
        ),
        "links": _rows(
            link_id=st.sampled_from(["l1", "l2", "a"]),
            link_type=st.sampled_from(["child_of", "belongs_to", "branches_from", "odd"]),
            from_id=IDS,
            to_id=IDS,
            created_at=TIMES,
        ),
        "properties": _rows(
            property_id=st.sampled_from(["p1", "p2"]),
            name=NAMES,
            value_type=TYPES,
            description=VALUES,
            scope=st.sampled_from(["crumb", "trail", "stash"]),
            created_at=TIMES,
        ),
        "categories": _rows(
            category_id=st.sampled_from(["k1", "k2"]),
            property_id=st.sampled_from(["p1", "p2", "p3"]),
            name=NAMES,
            ordinal=VALUES,
        ),
        "crumb_properties": _rows(
            crumb_id=IDS, property_id=st.sampled_from(["p1", "p2", "owner"]), value_type=TYPES, value=VALUES
        ),
        "metadata": _rows(
            metadata_id=st.sampled_from(["m1", "m2"]),
            table_name=st.sampled_from(["comments", "own", "Odd Name"]),
            crumb_id=IDS,
            property_id=st.sampled_from(["p1", "p9", None]),
            content=VALUES,
            created_at=TIMES,
        ),
        "stashes": _rows(
            stash_id=st.sampled_from(["s1", "s2"]),
            name=NAMES,
            stash_type=st.sampled_from(["counter", "lock", "context", "odd"]),
            value=VALUES,
            version=st.sampled_from([1, 2, 3, None]),
            created_at=TIMES,
            updated_at=TIMES,
            properties=st.dictionaries(NAMES.filter(bool), VALUES, max_size=1),
        ),
        "stash_history": _rows(
            history_id=st.sampled_from(["h1", "h2", "h3"]),
            stash_id=st.sampled_from(["s1", "s2", "s9"]),
            version=st.sampled_from([1, 2, 3, 4]),
            value=VALUES,
            operation=st.sampled_from(["create", "set", None]),
            changed_by=IDS,
            created_at=TIMES,
        ),
        "schemas": _rows(schema_name=st.sampled_from(["own", "Odd Name", "comments"]), content_type=VALUES),
    }
)


def write(path: Path, folder: Folder) -> Path:
    """A folder of these lines; those that are texts are written as they are."""
    path.mkdir(parents=True, exist_ok=True)
    for name, rows in folder.items():
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        text = "".join(f"{line}\n" for line in lines)
        (path / f"{name}.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def lines(path: Path) -> dict[str, list[Any]]:
    """The values in the files of a folder, in whatever order; a line that is none is itself."""
    return {
        file.name: sorted(map(_parse, file.read_bytes().splitlines()), key=repr)
        for file in sorted(path.iterdir())
    }


def _parse(line: bytes) -> Any:
    try:
        return values(json.loads(line))
    except ValueError:
        return line


def values(found: Any) -> Any:
    """What a value of JSON says, however it is spelt: keys in any order, a moment in any zone."""
    if isinstance(found, dict):
        return {key: values(found[key]) for key in sorted(found)}
    if isinstance(found, list):
        return [values(each) for each in found]
    if isinstance(found, str) and MOMENT.fullmatch(found):
        return datetime.fromisoformat(found).astimezone(UTC)
    return found


async def held(cupboard: Cupboard) -> dict[str, Any]:
    """Everything that a cupboard holds, by ids."""
    found: dict[str, Any] = {}
    for schema in SCHEMAS:
        if schema.name not in ("cupboard.catalog", "cupboard.lease"):
            query = dgent.Query(schema=schema.name, limit=None)
            found |= {
                each.id: (each.created_at, each.value) for each in await cupboard.universe.recall(query)
            }
    return found


async def through(source: Path, target: Path) -> tuple[dict[str, Any], ImportResult, ImportResult]:
    """Take a folder into an empty cupboard, twice, and write it out; what it holds, and what was told."""
    async with dgent.open("memory:", author="ann") as u:
        cupboard = Cupboard(u)
        first = await import_folder(cupboard, source)
        second = await import_folder(cupboard, source)
        await export_folder(cupboard, target)
        return await held(cupboard), first, second
