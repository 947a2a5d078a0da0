"""Issues of the beads tracker on their way into a cupboard and out of it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dgent
from dgent.cupboard import Cupboard
from dgent.errors import Conflict, NotFound
from dgent.exchange.foreign import export_beads, import_beads
from dgent.exchange.foreign.beads_issue import DEPENDENCY_TYPES
from dgent.verbs.context import Context
from dgent.verbs.registry import call, find
from tests.cupboard.exchange.folders import held, values
from tests.scratch import find_memory
from tests.soak import examples, times

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "beads-187.jsonl"
WHEN = "2025-10-27T21:48:57.733846-07:00"


def issue(id: str, **more: Any) -> dict[str, Any]:
    plain = {"id": id, "title": f"issue {id}", "description": "", "status": "open", "priority": 1}
    return {**plain, "issue_type": "task", "created_at": WHEN, "updated_at": WHEN, **more}


def depends(id: str, on: str, kind: str = "blocks", **more: Any) -> dict[str, Any]:
    return {"issue_id": id, "depends_on_id": on, "type": kind, "created_at": WHEN, "created_by": "al", **more}


def write(path: Path, issues: list[Any]) -> Path:
    lines = [each if isinstance(each, str) else json.dumps(each, separators=(",", ":")) for each in issues]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return path


async def back(cupboard: Cupboard, path: Path) -> list[Any]:
    """The issues in an export, by their creation and id."""
    await export_beads(cupboard, path, replace=True)
    found = [values(json.loads(line)) for line in path.read_bytes().splitlines()]
    return sorted(found, key=lambda each: (str(each.get("created_at")), each["id"]))


def by_id(issues: list[Any]) -> dict[str, Any]:
    return {each["id"]: values(each) for each in issues}


async def test_an_issue_becomes_a_crumb(cupboard: Cupboard, tmp_path: Path) -> None:
    a = issue(
        "bd-1", status="in_progress", assignee="ann", labels=["x", "y"], priority=0, description="do it"
    )
    b = issue(
        "bd-2",
        issue_type="feature",
        design="so",
        content_hash="abc",
        estimated_minutes=5,
        dependencies=[depends("bd-2", "bd-1"), depends("bd-2", "bd-3", "parent-child")],
        comments=[{"id": 7, "issue_id": "bd-2", "author": "bob", "text": "why?", "created_at": WHEN}],
    )
    c = issue("bd-3", status="closed", closed_at=WHEN, close_reason="done")
    done = await import_beads(cupboard, write(tmp_path / "in", [a, b, c]))
    assert (done.odd, done.kept) == (0, 0)
    one, two, three = [await cupboard.crumbs.get(f"bd-{n}") for n in (1, 2, 3)]
    assert (one.state, two.state, three.state) == ("taken", "ready", "pebble")
    assert one.holder == "ann"
    assert one.readable() == {
        "priority": "highest",
        "type": "task",
        "description": "do it",
        "owner": "ann",
        "labels": ["x", "y"],
    }
    assert two.readable()["type"] == "feature"
    assert await cupboard.ready() == [], "the second waits for the first"
    assert (await cupboard.explain(two)).waits_for == ("bd-1",)
    (comment,) = await cupboard.metadata.fetch(crumb_id="bd-2", schema="comments")
    assert (comment.content, comment.extra["author"]) == ("why?", "bob")
    assert (
        comment.created_at is not None
        and comment.created_at.isoformat() == "2025-10-28T04:48:57.733846+00:00"
    )
    assert await cupboard.metadata.fetch(crumb_id="bd-2", schema="beads_dependencies") == []
    assert [each.to_id for each in await cupboard.links.fetch(link_type="part_of")] == ["bd-3"]
    assert await back(cupboard, tmp_path / "out") == values([a, b, c])
    assert (await cupboard.audit()).ok


@pytest.mark.skipif(not REAL.exists(), reason="the file is not here")
async def test_a_real_file_comes_out_with_every_value(cupboard: Cupboard, tmp_path: Path) -> None:
    done = await import_beads(cupboard, REAL)
    assert (done.odd, done.kept) == (0, 0)
    assert (await import_beads(cupboard, REAL)).seq is None
    given = [json.loads(line) for line in REAL.read_bytes().splitlines()]
    assert by_id(await back(cupboard, tmp_path / "out")) == by_id(given)
    wanted = Counter(each["type"] for row in given for each in row.get("dependencies", []))
    found = Counter(DEPENDENCY_TYPES[each.link_type] for each in await cupboard.links.fetch())
    assert found == wanted == {"blocks": 54, "parent-child": 36, "discovered-from": 2, "related": 1}
    assert await cupboard.metadata.fetch(schema="beads_dependencies") == []
    assert {each.id for each in await cupboard.ready()} == ready_in_beads(given)
    assert (await cupboard.audit()).ok


BLOCKING = ("open", "in_progress", "blocked", "deferred", "hooked")


def ready_in_beads(issues: list[dict[str, Any]]) -> set[str]:
    """The issues that `bd ready` lists: open, and neither they nor an epic above them is blocked."""
    status = {each["id"]: each["status"] for each in issues}
    edges = [(each["id"], part) for each in issues for part in each.get("dependencies", [])]
    blocked = {
        id for id, part in edges if part["type"] == "blocks" and status.get(part["depends_on_id"]) in BLOCKING
    }
    while True:
        parts = {
            id for id, part in edges if part["type"] == "parent-child" and part["depends_on_id"] in blocked
        }
        if parts <= blocked:
            return {id for id in status if status[id] == "open" and id not in blocked}
        blocked |= parts


IDS = st.sampled_from([f"bd-{n}" for n in range(7)])
KINDS = st.sampled_from(["blocks", "parent-child", "related", "discovered-from", "duplicates", "supersedes"])


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(["open", "open", "closed", "in_progress"]), min_size=7, max_size=7),
    st.lists(st.tuples(IDS, IDS, KINDS), max_size=14, unique=True),
)
def test_what_is_ready_is_ready_in_beads_too(status: list[str], edges: list[tuple[str, str, str]]) -> None:
    edges = [(max(a, b), min(a, b), kind) for a, b, kind in edges if a != b]  # beads has no circles either
    rows = [
        issue(
            f"bd-{n}",
            status=state,
            dependencies=[depends(*edge) for edge in dict.fromkeys(edges) if edge[0] == f"bd-{n}"],
        )
        for n, state in enumerate(status)
    ]

    async def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with dgent.open("memory:") as u:
                cupboard = Cupboard(u)
                await import_beads(cupboard, write(Path(folder) / "in", rows))
                assert {each.id for each in await cupboard.ready()} == ready_in_beads(rows)
                assert (await cupboard.audit()).ok
                assert await cupboard.metadata.fetch(schema="beads_dependencies") == []
                assert by_id(await back(cupboard, Path(folder) / "out")) == by_id(rows)

    asyncio.run(check())


async def test_circles_and_loose_ends_stop_nothing(quick: Cupboard, tmp_path: Path) -> None:
    rows = [
        issue("a", dependencies=[depends("a", "b"), depends("a", "gone"), depends("a", "a")]),
        issue("b", dependencies=[depends("b", "c")]),
        issue("c", dependencies=[depends("c", "a"), depends("c", "b", "related"), depends("x", "b")]),
    ]
    done = await import_beads(quick, write(tmp_path / "in", rows))
    assert done.odd == 4
    assert len(await quick.links.fetch(link_type="child_of")) == 2
    assert len(await quick.links.fetch(link_type="related_to")) == 1
    assert [each.id for each in await quick.ready()] == ["c"]
    assert (await quick.audit()).ok
    assert by_id(await back(quick, tmp_path / "out")) == by_id(rows)
    assert (await import_beads(quick, tmp_path / "in")).seq is None


async def test_a_dependency_becomes_a_link_when_its_issue_comes(quick: Cupboard, tmp_path: Path) -> None:
    rows = [issue("a", dependencies=[depends("a", "b")])]
    await import_beads(quick, write(tmp_path / "in", rows))
    assert await quick.links.fetch() == []
    await import_beads(quick, write(tmp_path / "in", [*rows, issue("b")]))
    assert [(each.from_id, each.to_id) for each in await quick.links.fetch()] == [("a", "b")]
    assert await quick.metadata.fetch(schema="beads_dependencies") == []


async def test_odd_lines_are_kept(quick: Cupboard, tmp_path: Path) -> None:
    rows = [
        issue("a"),
        "no line",
        issue("b", status="odd", priority=9, title=""),
        '{"title":"no id"}',
        "\udcff",
    ]
    path = write(tmp_path / "in", rows)
    done = await import_beads(quick, path)
    assert (done.kept, done.odd) == (3, 5)
    assert (await quick.crumbs.get("b")).state == "pending"
    await export_beads(quick, tmp_path / "out")
    out = (tmp_path / "out").read_bytes().splitlines()
    assert set(path.read_bytes().splitlines()) & set(out) >= {b"no line", b'{"title":"no id"}', b"\xff"}
    assert by_id([json.loads(line) for line in out if line.startswith(b'{"id"')]) == by_id([rows[0], rows[2]])
    assert len(out) == len(rows)


async def test_what_is_done_here_goes_back(quick: Cupboard, tmp_path: Path) -> None:
    rows = [issue("a", content_hash="h"), issue("b", dependencies=[depends("b", "a")])]
    await import_beads(quick, write(tmp_path / "in", rows))
    crumb = await quick.take("ann")
    assert crumb is not None and crumb.id == "a"
    await quick.done(crumb)
    await quick.comment("b", "now")
    (link,) = await quick.links.fetch()
    await quick.links.delete(link.id)
    await quick.add("new one", state="ready")
    a, b, new = await back(quick, tmp_path / "out")
    assert (a["status"], a["closed_at"]) == ("closed", a["updated_at"])
    assert "content_hash" not in a and a["created_at"] == values(WHEN)
    assert "dependencies" not in b
    assert [each["text"] for each in b["comments"]] == ["now"]
    assert (new["title"], new["status"], new["priority"]) == ("new one", "open", 2)
    await export_beads(quick, tmp_path / "old", imported=True)
    assert len((tmp_path / "old").read_bytes().splitlines()) == 2


async def test_a_newer_file_brings_its_changes(quick: Cupboard, tmp_path: Path) -> None:
    rows = [issue("a", dependencies=[depends("a", "b")], notes="old"), issue("b")]
    await import_beads(quick, write(tmp_path / "in", rows))
    rows[0] = issue("a", status="blocked", updated_at="2999-01-01T00:00:00Z")
    done = await import_beads(quick, write(tmp_path / "in", rows))
    assert done.changed == 1
    assert await quick.links.fetch() == [] and await quick.metadata.fetch() == []
    assert by_id(await back(quick, tmp_path / "out")) == by_id(rows)
    rows[0] = issue("a", title="older")
    assert (await import_beads(quick, write(tmp_path / "in", rows))).skipped == 1
    assert (await quick.crumbs.get("a")).name == "issue a"


async def test_a_tombstone_blocks_nobody(quick: Cupboard, tmp_path: Path) -> None:
    rows = [
        issue("a", status="tombstone", deleted_at=WHEN),
        issue("b", dependencies=[depends("b", "a")]),
        issue("c", dependencies=[depends("c", "b")]),
    ]
    done = await import_beads(quick, write(tmp_path / "in", rows))
    assert done.odd == 0
    assert [each.id for each in await quick.ready()] == ["b"]
    assert (await quick.audit()).ok
    assert by_id(await back(quick, tmp_path / "out")) == by_id(rows)
    assert (await import_beads(quick, tmp_path / "in")).seq is None


async def test_what_becomes_a_tombstone_or_comes_back(quick: Cupboard, tmp_path: Path) -> None:
    later = iter(f"2026-01-{day:02}T00:00:00Z" for day in range(1, 9))
    b = issue("b", dependencies=[depends("b", "a")])
    await import_beads(quick, write(tmp_path / "in", [issue("a"), b]))
    assert [each.id for each in await quick.ready()] == ["a"]
    for status, ready in (("tombstone", ["b"]), ("open", ["a"]), ("closed", ["b"]), ("tombstone", ["b"])):
        rows = [issue("a", status=status, updated_at=next(later)), b]
        await import_beads(quick, write(tmp_path / "in", rows))
        assert [each.id for each in await quick.ready()] == ready, status
        assert by_id(await back(quick, tmp_path / "out")) == by_id(rows)
        assert (await quick.audit()).ok


async def test_a_tombstone_frees_also_those_that_its_file_does_not_have(
    quick: Cupboard, tmp_path: Path
) -> None:
    b = issue("b", dependencies=[depends("b", "x"), depends("b", "a")])
    await import_beads(quick, write(tmp_path / "in", [issue("a"), b]))
    mine = await quick.add("made here", parents=["a"], state="ready")
    gone = issue("a", status="tombstone", updated_at="2026-01-09T00:00:00Z")
    await import_beads(quick, write(tmp_path / "some", [gone]))
    assert {each.id for each in await quick.ready()} == {"b", mine.id}
    assert (await quick.audit()).ok
    out = await back(quick, tmp_path / "out")
    assert by_id(out[:2]) == by_id([gone, b])
    assert [each["depends_on_id"] for each in out[2]["dependencies"]] == ["a"]
    assert (await import_beads(quick, write(tmp_path / "all", [gone, b]))).seq is None


async def test_what_was_deleted_here_stays_deleted(cupboard: Cupboard, tmp_path: Path) -> None:
    said = [{"id": 1, "issue_id": "a", "author": "bob", "text": "why?", "created_at": WHEN}]
    rows = [issue("a", comments=said), issue("b", dependencies=[depends("b", "a")])]
    path = write(tmp_path / "in", rows)
    first = await import_beads(cupboard, path)
    assert first.seq is not None
    await cupboard.crumbs.delete("a")
    for existing in ("newer", "skip"):
        again = await import_beads(cupboard, path, existing=existing)
        assert (again.added, again.skipped) == (1 if existing == "newer" else 0, 1)  # "b" no longer waits
        assert [each.id for each in await cupboard.crumbs.fetch()] == ["b"]
        assert (await cupboard.audit()).ok
    assert [each.id for each in await cupboard.ready()] == ["b"]
    newer = [issue("a", comments=said, updated_at="2999-01-01T00:00:00Z"), rows[1]]
    await import_beads(cupboard, write(tmp_path / "newer", newer))  # it was changed there since
    assert {each.id for each in await cupboard.crumbs.fetch()} == {"a", "b"}
    assert by_id(await back(cupboard, tmp_path / "out")) == by_id(newer)
    await cupboard.crumbs.delete("a")
    await import_beads(cupboard, path, existing="replace")
    assert by_id(await back(cupboard, tmp_path / "out")) == by_id(rows)


def told(text: str, number: int = 1, when: str = WHEN) -> dict[str, Any]:
    return {"id": number, "issue_id": "b", "author": "bob", "text": text, "created_at": when}


async def test_links_comments_and_texts_that_were_deleted_here_stay_deleted(
    cupboard: Cupboard, tmp_path: Path
) -> None:
    b = issue(
        "b",
        notes="long",
        comments=[told("why?"), told("so", 2)],
        dependencies=[depends("b", "a"), depends("b", "c"), depends("b", "d", "related")],
    )
    rows = [issue("a"), b, issue("c"), issue("d")]
    path = write(tmp_path / "in", rows)
    await import_beads(cupboard, path)
    for gone in ("a", "d"):
        (link,) = await cupboard.links.fetch(to_id=gone)
        await cupboard.links.delete(link.id)
    for entry in await cupboard.metadata.fetch(crumb_id="b"):
        if entry.content != "so":
            await cupboard.metadata.delete(entry.id)
    left = {**b, "comments": [told("so", 2)], "dependencies": [depends("b", "c")]}
    del left["notes"]
    for existing in ("newer", "skip"):
        again = await import_beads(cupboard, path, existing=existing)
        assert (again.seq, again.added, again.skipped) == (None, 0, 4)
    assert (await back(cupboard, tmp_path / "out"))[1] == values(left)
    # Other changes of the issue bring only what they are about.
    newer = "2999-01-01T00:00:00Z"
    more = {"title": "other", "updated_at": newer, "comments": [*b["comments"], told("new", 3, newer)]}
    await import_beads(cupboard, write(tmp_path / "more", [rows[0], b | more, *rows[2:]]))
    out = (await back(cupboard, tmp_path / "out"))[1]
    assert (out["title"], out["dependencies"]) == ("other", values(left["dependencies"]))
    assert out["comments"] == values([told("so", 2), told("new", 3, newer)])
    assert out["notes"] == "long"  # it has no time but that of the issue
    # The issue that it waited for became a tombstone: neither is that worth an entry.
    dead = issue("a", status="tombstone", updated_at=newer)
    await import_beads(cupboard, write(tmp_path / "gone", [dead, b | more, *rows[2:]]))
    assert (await back(cupboard, tmp_path / "out"))[1] == out
    assert (await cupboard.audit()).ok
    await import_beads(cupboard, path, existing="replace")
    assert await back(cupboard, tmp_path / "out") == values(rows)


async def test_what_the_file_had_removed_comes_back_with_it(quick: Cupboard, tmp_path: Path) -> None:
    rows = [issue("a"), issue("b", dependencies=[depends("b", "a")], comments=[told("why?")])]
    await import_beads(quick, write(tmp_path / "in", rows))
    await import_beads(quick, write(tmp_path / "less", [issue("a"), issue("b")]))
    assert await quick.links.fetch() == [] and await quick.metadata.fetch() == []
    assert (await import_beads(quick, tmp_path / "in")).added == 2
    assert await back(quick, tmp_path / "out") == values(rows)


async def test_a_crumb_that_comes_back_has_its_links_and_comments(quick: Cupboard, tmp_path: Path) -> None:
    rows = [issue("a"), issue("b", dependencies=[depends("b", "a")], comments=[told("why?"), told("so", 2)])]
    await import_beads(quick, write(tmp_path / "in", rows))
    for entry in await quick.metadata.fetch(crumb_id="b"):
        if entry.content == "so":
            await quick.metadata.delete(entry.id)  # earlier, and for itself
    await quick.crumbs.delete("b")
    rows[1] |= {"updated_at": "2999-01-01T00:00:00Z"}
    await import_beads(quick, write(tmp_path / "in", rows))
    wanted = [rows[0], rows[1] | {"comments": [told("why?")]}]
    assert await back(quick, tmp_path / "out") == values(wanted)
    await quick.crumbs.delete("a")
    rows[0] |= {"updated_at": "2999-01-01T00:00:00Z"}
    await import_beads(quick, write(tmp_path / "in", rows))
    assert [(each.from_id, each.to_id) for each in await quick.links.fetch()] == [("b", "a")]


async def test_an_import_that_was_undone_can_be_repeated(quick: Cupboard, tmp_path: Path) -> None:
    rows = [issue("a"), issue("b", dependencies=[depends("b", "a")])]
    first = await import_beads(quick, write(tmp_path / "in", rows))
    assert first.seq is not None
    await quick.universe.undo(first.seq)
    assert await quick.crumbs.fetch() == []
    assert (await import_beads(quick, tmp_path / "in")).added == 3
    assert by_id(await back(quick, tmp_path / "out")) == by_id(rows)


async def test_the_holder_is_the_assignee(quick: Cupboard, tmp_path: Path) -> None:
    await import_beads(quick, write(tmp_path / "in", [issue("a"), issue("b", assignee="bob")]))
    assert [await quick.take("ann") for _ in range(2)]
    a, b = await back(quick, tmp_path / "out")
    assert [(each["status"], each["assignee"]) for each in (a, b)] == [("in_progress", "ann")] * 2
    async with dgent.open("memory:") as u:
        other = Cupboard(u)
        await import_beads(other, tmp_path / "out")
        assert (await other.crumbs.get("a")).holder == "ann"
    await quick.release("b", agent="ann")
    assert (await back(quick, tmp_path / "out"))[1] == values(issue("b", assignee="bob")) | {
        "updated_at": (await back(quick, tmp_path / "out"))[1]["updated_at"]
    }


async def test_who_did_it_is_the_assignee_afterwards(quick: Cupboard, tmp_path: Path) -> None:
    await import_beads(quick, write(tmp_path / "in", [issue("a"), issue("b", assignee="ann")]))
    for _ in range(2):
        taken = await quick.take("scout")
        assert taken is not None
        await quick.done(taken, reason="so")
    out = by_id(await back(quick, tmp_path / "out"))
    assert (out["a"]["assignee"], out["b"]["assignee"]) == ("scout", "ann")
    assert (out["a"]["status"], out["a"]["close_reason"]) == ("closed", "so")


async def test_lines_and_keys_are_in_the_order_of_beads(quick: Cupboard, tmp_path: Path) -> None:
    a = issue("bd-b", labels=["x"], closed_at=WHEN, external_ref="e", zeal=1, content_hash="h")
    b = issue("bd-a", dependencies=[depends("bd-a", "bd-b", metadata="{}")])
    await import_beads(quick, write(tmp_path / "in", [a, b]))
    await export_beads(quick, tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["bd-a", "bd-b"]
    order = "id content_hash title description status priority issue_type created_at updated_at closed_at"
    assert " ".join(rows[1]) == f"{order} external_ref labels zeal"
    assert " ".join(rows[0]["dependencies"][0]) == (
        "issue_id depends_on_id type created_at created_by metadata"
    )
    before = (tmp_path / "out").read_bytes()
    await export_beads(quick, tmp_path / "out", replace=True)
    assert (tmp_path / "out").read_bytes() == before


@pytest.mark.skipif(not REAL.exists(), reason="the file is not here")
async def test_a_real_file_comes_out_in_its_order(quick: Cupboard, tmp_path: Path) -> None:
    await import_beads(quick, REAL)
    await export_beads(quick, tmp_path / "out")
    files = REAL, tmp_path / "out"
    given, found = ([list(json.loads(line)) for line in path.read_bytes().splitlines()] for path in files)
    assert found == given


async def test_a_watched_export_follows_every_change(quick: Cupboard, tmp_path: Path) -> None:
    path = tmp_path / "issues.jsonl"

    async def same() -> dgent.Universe:
        return quick.universe

    context = Context(same)
    ask = {"path": str(path), "watch": True}
    task = asyncio.create_task(call(find("beads.export"), context, ask))
    try:
        for name in ("first", "second"):
            await quick.add(name)
            async with asyncio.timeout(20):
                while not path.exists() or name not in path.read_text():
                    await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(path.read_text().splitlines()) == 2


async def test_files_that_are_refused(quick: Cupboard, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await import_beads(quick, tmp_path / "none")
    path = write(tmp_path / "in", [issue("a"), "<<<<<<< HEAD", issue("b")])
    with pytest.raises(Conflict, match="in, line 2"):
        await import_beads(quick, path)
    with pytest.raises(Conflict):
        await export_beads(quick, path)
    assert (await import_beads(quick, write(path, [issue("a")]), dry_run=True)).added == 1
    assert await quick.crumbs.fetch() == []


async def test_thousands_of_issues_with_long_chains(tmp_path: Path) -> None:
    many = times(2_000)
    rows = []
    for n in range(many):
        links = [depends(f"i{n}", f"i{n - 1}")] if n else [depends("i0", f"i{many - 1}")]
        rows.append(issue(f"i{n}", dependencies=[*links, depends(f"i{n}", f"i{n * 7 % many}")]))
    async with dgent.open("memory:", author="ann") as u:
        cupboard = Cupboard(u)
        before = await u.seq()
        done = await import_beads(cupboard, write(tmp_path / "in", rows))
        assert await u.seq() - before <= 2, "one commit, beside what every cupboard begins with"
        assert len(await cupboard.crumbs.fetch()) == many
        assert done.odd > 0
        assert by_id(await back(cupboard, tmp_path / "out")) == by_id(rows)
        assert not [each for each in (await cupboard.audit()).findings if each.rule == "acyclic"]


ODD = st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=4) | st.just([]) | st.just({"a": 1})
PART = st.dictionaries(
    st.sampled_from(["issue_id", "depends_on_id", "type", "created_at", "text", "author", "id", "x"]),
    st.sampled_from(["a", "b", "blocks", "related", WHEN, "2026-01-01T00:00:00Z"]) | ODD,
    max_size=7,
)
LIST = st.lists(PART | ODD, max_size=3) | ODD
FIELDS = ("title", "description", "status", "priority", "issue_type", "assignee", "labels", "design", "notes")
MORE = ("created_at", "updated_at", "closed_at", "defer_until", "content_hash", "beads", "x")
WORDS = st.sampled_from(["open", "closed", "deferred", "feature", "bug", WHEN, "2026-01-01"]) | ODD
ISSUES = st.fixed_dictionaries(
    {"id": st.sampled_from(["a", "b", "c"])},
    optional={**dict.fromkeys((*FIELDS, *MORE), WORDS), "dependencies": LIST, "comments": LIST},
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ISSUES, max_size=4, unique_by=lambda row: row["id"]))
def test_whatever_an_issue_says_comes_back(rows: list[dict[str, Any]]) -> None:
    async def main(base: Path) -> None:
        path = write(base / "in", rows)
        async with dgent.open("memory:", author="ann") as u:
            cupboard = Cupboard(u)
            await import_beads(cupboard, path)
            before = await held(cupboard)
            assert (await import_beads(cupboard, path)).seq is None
            assert await held(cupboard) == before
            assert by_id(await back(cupboard, base / "out")) == by_id(rows)

    with tempfile.TemporaryDirectory(dir=find_memory()) as base:
        asyncio.run(main(Path(base)))
