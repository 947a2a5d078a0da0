"""One call of each verb of the cupboard, and the cupboard that they start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dgent import Universe
from dgent.cupboard import Crumb, Cupboard, Link, Metadata, Stash, Trail
from tests.verbs.case import Case

NOBODY = [Case({"id": "nobody"}, ["nobody"], "entity_not_found")]

CUPBOARD_CASES: dict[str, list[Case]] = {
    "crumb.add": [
        Case(
            {
                "name": "new work",
                "state": "open",
                "priority": "high",
                "parent": ("crumb-a",),
                "label": ("x",),
            },
            ["new", "work", "-s", "open", "--priority", "high", "--parent", "crumb-a", "-l", "x"],
        ),
        Case({"name": "new", "property": ("owner=ann",)}, ["new", "-P", "owner=ann"]),
        Case({"name": "x", "state": "odd"}, ["x", "-s", "odd"], "invalid_state"),
        Case({"name": "x", "type": "odd"}, ["x", "--type", "odd"], "invalid_category"),
        Case({"name": "x", "property": ("odd=1",)}, ["x", "-P", "odd=1"], "property_not_found"),
    ],
    "crumb.new": [
        Case(
            {"text": "new work", "needs": ("crumb-a",), "label": ("x,y",), "priority": "P1"},
            ["new", "work", "--needs", "crumb-a", "-l", "x,y", "--priority", "P1"],
        ),
        Case(
            {"text": "x", "draft": True, "blocks": ("nobody",)},
            ["x", "--draft", "--blocks", "nobody"],
            "entity_not_found",
        ),
        Case({"text": "x", "part_of": ("crumb-a",)}, ["x", "--part-of", "crumb-a"]),
        Case({"text": "{"}, ["{"], "input"),
    ],
    "crumb.get": [Case({"id": "crumb-b"}, ["crumb-b"]), Case({"id": "alpha"}, ["alpha"]), *NOBODY],
    "crumb.list": [
        Case({"state": ("open",), "limit": 1}, ["-s", "open", "-n", "1"]),
        Case({"trail": "trail-a"}, ["--trail", "trail-a"]),
        Case({"state": ("odd",)}, ["-s", "odd"], "invalid_state"),
        Case({"limit": 0}, ["-n", "0"], "input"),
    ],
    "crumb.set": [
        Case(
            {"id": "crumb-a", "add_label": ("a,b",), "remove_label": ("a",), "related": ("crumb-b",)},
            ["crumb-a", "--add-label", "a,b", "--remove-label", "a", "--related", "crumb-b"],
        ),
        Case(
            {"id": "crumb-a", "name": "other", "owner": "ann"},
            ["crumb-a", "--name", "other", "--owner", "ann"],
        ),
        Case({"id": "crumb-a"}, ["crumb-a"], "input"),
        Case(
            {"id": "crumb-a", "name": "x", "expect": 9},
            ["crumb-a", "--name", "x", "--expect", "9"],
            "conflict",
        ),
    ],
    "crumb.state": [
        Case({"id": "crumb-a", "state": "closed"}, ["crumb-a", "closed"]),
        Case({"id": "crumb-a", "state": "odd"}, ["crumb-a", "odd"], "invalid_state"),
    ],
    "crumb.delete": [Case({"id": "crumb-a"}, ["crumb-a"]), *NOBODY],
    "crumb.history": [Case({"id": "crumb-a", "limit": 1}, ["crumb-a", "-n", "1"]), *NOBODY],
    "crumb.ready": [
        Case({"limit": 5}, ["-n", "5"]),
        Case({"explain": True}, ["--explain"]),
        Case({"type": "epic"}, ["--type", "epic"]),
        Case({"limit": 0}, ["-n", "0"], "input"),
    ],
    "crumb.take": [
        Case({"id": "crumb-a"}, ["crumb-a"]),
        Case({"id": "crumb-a", "next": True}, ["crumb-a", "--next"], "input"),
        Case({"lease": 60}, ["--lease", "60"]),
        Case({"type": "epic"}, ["--type", "epic"], "not_found"),
        Case({"lease": -1}, ["--lease", "-1"], "invalid_data"),
    ],
    "crumb.done": [
        Case({"id": "crumb-a", "more": ("crumb-b",), "message": "so"}, ["crumb-a", "crumb-b", "-m", "so"]),
        Case({"id": "crumb-a"}, ["crumb-a"]),
        Case({"id": "crumb-a", "token": 3}, ["crumb-a", "--token", "3"], "not_lock_holder"),
    ],
    "crumb.drop": [Case({"id": "crumb-a"}, ["crumb-a"]), *NOBODY],
    "crumb.release": [Case({"id": "crumb-a"}, ["crumb-a"]), *NOBODY],
    "crumb.reopen": [Case({"id": "crumb-a"}, ["crumb-a"], "invalid_transition"), *NOBODY],
    "crumb.heartbeat": [Case({"id": "crumb-a"}, ["crumb-a"], "not_lock_holder")],
    "crumb.blocked": [Case({}, [])],
    "crumb.stale": [Case({"days": 3.0}, ["--days", "3"]), Case({"days": -1.0}, ["--days", "-1"], "input")],
    "crumb.duplicates": [Case({}, [])],
    "crumb.explain": [Case({"id": "crumb-b"}, ["crumb-b"]), *NOBODY],
    "crumb.board": [Case({}, []), Case({"trail": "trail-a", "limit": 1}, ["--trail", "trail-a", "-n", "1"])],
    "trail.start": [
        Case(
            {"name": "try redis", "goal": "speed", "branches_from": "crumb-a"},
            ["try", "redis", "-g", "speed", "--branches-from", "crumb-a"],
        ),
        Case({"name": "try redis"}, ["try", "redis"]),
    ],
    "trail.list": [Case({}, []), Case({"state": ("odd",)}, ["-s", "odd"], "invalid_state")],
    "trail.get": [Case({"id": "trail-a"}, ["trail-a"]), *NOBODY],
    "trail.set": [
        Case({"id": "trail-a", "goal": "more"}, ["trail-a", "--goal", "more"]),
        Case({"id": "trail-a", "state": "draft"}, ["trail-a", "-s", "draft"], "invalid_state"),
    ],
    "trail.complete": [Case({"id": "trail-a"}, ["trail-a"]), *NOBODY],
    "trail.abandon": [
        Case({"id": "trail-a", "reason": "slow", "lesson": "no"}, ["trail-a", "-r", "slow", "-l", "no"]),
        *NOBODY,
    ],
    "trail.compare": [Case({"a": "trail-a", "b": "trail-a"}, ["trail-a", "trail-a"])],
    "trail.delete": [Case({"id": "trail-a"}, ["trail-a"]), *NOBODY],
    "trail.lessons": [Case({"words": "redis"}, ["redis"])],
    "link.add": [
        Case(
            {"type": "belongs_to", "from_id": "crumb-a", "to_id": "trail-a"},
            ["belongs_to", "crumb-a", "trail-a"],
        ),
        Case(
            {"type": "child_of", "from_id": "crumb-a", "to_id": "crumb-b"},
            ["child_of", "crumb-a", "crumb-b"],
            "cycle",
        ),
        Case(
            {"type": "odd", "from_id": "crumb-a", "to_id": "crumb-b"}, ["odd", "crumb-a", "crumb-b"], "input"
        ),
    ],
    "link.list": [Case({"type": "child_of", "to_id": "crumb-a"}, ["-t", "child_of", "--to-id", "crumb-a"])],
    "link.remove": [
        Case(
            {"type": "child_of", "from_id": "crumb-b", "to_id": "crumb-a"}, ["child_of", "crumb-b", "crumb-a"]
        ),
        Case(
            {"type": "part_of", "from_id": "crumb-b", "to_id": "crumb-a"},
            ["part_of", "crumb-b", "crumb-a"],
            "not_found",
        ),
    ],
    "link.delete": [Case({"id": "link-a"}, ["link-a"]), *NOBODY],
    "property.define": [
        Case(
            {"name": "risk", "scope": "trail", "category": ("low", "high")},
            ["risk", "--scope", "trail", "--category", "low", "--category", "high"],
        ),
        Case({"name": "owner"}, ["owner"], "duplicate_name"),
    ],
    "property.list": [Case({}, []), Case({"scope": "crumb"}, ["--scope", "crumb"])],
    "property.get": [
        Case({"id": "crumb-a", "name": "priority"}, ["crumb-a", "priority"]),
        Case({"id": "crumb-a", "name": "odd"}, ["crumb-a", "odd"], "property_not_found"),
    ],
    "property.set": [
        Case({"id": "crumb-a", "name": "labels", "value": "x,y"}, ["crumb-a", "labels", "x,y"]),
        Case(
            {"id": "crumb-a", "name": "type", "value": "odd"}, ["crumb-a", "type", "odd"], "invalid_category"
        ),
    ],
    "property.clear": [Case({"id": "crumb-a", "name": "priority"}, ["crumb-a", "priority"])],
    "property.category": [
        Case({"name": "type", "category": "rite"}, ["type", "rite"]),
        Case({"name": "type", "category": "bug"}, ["type", "bug"], "duplicate_name"),
        Case({"name": "owner", "category": "ann"}, ["owner", "ann"], "invalid_value_type"),
    ],
    "property.categories": [Case({"name": "type"}, ["type"])],
    "property.delete": [Case({"name": "owner"}, ["owner"], "invalid_data")],
    "stash.create": [
        Case({"name": "s", "type": "counter", "value": 3}, ["s", "-t", "counter", "--value", "3"]),
        Case({"name": "n"}, ["n"], "duplicate_name"),
        Case({"name": "n", "trail": "trail-a"}, ["n", "--trail", "trail-a"]),
    ],
    "stash.get": [Case({"id": "n"}, ["n"]), *NOBODY],
    "stash.list": [Case({"type": "lock"}, ["-t", "lock"])],
    "stash.set": [
        Case({"id": "n", "value": 7, "by": "crumb-a"}, ["n", "7", "--by", "crumb-a"]),
        Case({"id": "l", "value": 7}, ["l", "7"], "input"),
        Case({"id": "n", "value": 7, "expect": 4}, ["n", "7", "--expect", "4"], "version_conflict"),
    ],
    "stash.increment": [
        Case({"id": "n", "delta": 4}, ["n", "4"]),
        Case({"id": "l"}, ["l"], "invalid_stash_type"),
    ],
    "stash.acquire": [Case({"id": "l"}, ["l"]), Case({"id": "n"}, ["n"], "invalid_stash_type")],
    "stash.heartbeat": [Case({"id": "l"}, ["l"], "not_lock_holder")],
    "stash.release": [Case({"id": "l"}, ["l"], "not_lock_holder")],
    "stash.history": [Case({"id": "n"}, ["n"]), *NOBODY],
    "stash.delete": [Case({"id": "l"}, ["l"]), *NOBODY],
    "metadata.comment": [
        Case({"id": "crumb-a", "text": "well done"}, ["crumb-a", "well", "done"]),
        Case({"id": "nobody", "text": "x"}, ["nobody", "x"], "entity_not_found"),
    ],
    "metadata.comments": [Case({"id": "crumb-b"}, ["crumb-b"]), *NOBODY],
    "metadata.add": [
        Case(
            {"id": "crumb-a", "content": "{}", "schema": "attachments"},
            ["crumb-a", "{}", "-s", "attachments"],
        ),
        Case(
            {"id": "crumb-a", "content": "x", "schema": "odd"},
            ["crumb-a", "x", "-s", "odd"],
            "schema_not_found",
        ),
    ],
    "metadata.list": [Case({"contains": "SAID"}, ["--contains", "SAID"])],
    "metadata.delete": [Case({"id": "meta-a"}, ["meta-a"]), *NOBODY],
    "metadata.register": [
        Case({"name": "reviews", "content_type": "json"}, ["reviews", "-t", "json"]),
        Case({"name": "Odd Name"}, ["Odd Name"], "invalid_name"),
    ],
    "metadata.schemas": [Case({}, [])],
    "cupboard.init": [Case({}, [])],
    "cupboard.audit": [Case({}, [])],
    "cupboard.graph": [
        Case({}, []),
        Case({"trail": "trail-a", "form": "dot"}, ["--trail", "trail-a", "--form", "dot"]),
    ],
    "cupboard.get": [
        Case({"table": "crumbs", "id": "crumb-a"}, ["crumbs", "crumb-a"]),
        Case({"table": "odd", "id": "crumb-a"}, ["odd", "crumb-a"], "table_not_found"),
        Case({"table": "links", "id": "nobody"}, ["links", "nobody"], "entity_not_found"),
    ],
    "cupboard.set": [
        Case(
            {"table": "crumbs", "id": "", "data": {"Name": "x", "State": "ready"}},
            ["crumbs", "", '{"Name": "x", "State": "ready"}'],
        ),
        Case(
            {"table": "trails", "id": "trail-a", "data": {"state": "completed"}},
            ["trails", "trail-a", '{"state": "completed"}'],
        ),
        Case({"table": "crumbs", "id": "", "data": "{"}, ["crumbs", "", "{"], "input"),
        Case(
            {"table": "crumbs", "id": "", "data": {"Nmae": 1}}, ["crumbs", "", '{"Nmae": 1}'], "invalid_data"
        ),
    ],
    "cupboard.list": [
        Case({"table": "crumbs", "filter": ("State=ready",)}, ["crumbs", "State=ready"]),
        Case({"table": "crumbs", "filter": ("odd",)}, ["crumbs", "odd"], "invalid_filter"),
    ],
    "cupboard.delete": [Case({"table": "stashes", "id": "n"}, ["stashes", "n"])],
    "cupboard.import": [
        Case({"path": "{crumbs}"}, ["{crumbs}"]),
        Case(
            {"path": "{crumbs}", "existing": "replace", "dry_run": True},
            ["{crumbs}", "--existing", "replace", "--dry-run"],
        ),
        Case({"path": "{new}"}, ["{new}"], "not_found"),
        Case({"path": "{folder}"}, ["{folder}"], "input"),
    ],
    "cupboard.export": [
        Case({"path": "{new}"}, ["{new}"]),
        Case({"path": "{crumbs}", "replace": True}, ["{crumbs}", "--replace"]),
        Case({"path": "{crumbs}"}, ["{crumbs}"], "conflict"),
    ],
    "beads.import": [
        Case({"path": "{crumbs}/issues.jsonl"}, ["{crumbs}/issues.jsonl"]),
        Case({"path": "{crumbs}/issues.jsonl", "dry_run": True}, ["{crumbs}/issues.jsonl", "--dry-run"]),
        Case({"path": "{new}"}, ["{new}"], "not_found"),
    ],
    "beads.export": [
        Case({"path": "{new}"}, ["{new}"]),
        Case({"path": "{new}", "imported": True}, ["{new}", "--imported"]),
        Case({"path": "{crumbs}/issues.jsonl"}, ["{crumbs}/issues.jsonl"], "conflict"),
    ],
    "graph.import": [
        Case({"path": "{crumbs}/issues.jsonl"}, ["{crumbs}/issues.jsonl"]),
        Case(
            {"path": "{crumbs}/issues.jsonl", "existing": "merge", "dry_run": True},
            ["{crumbs}/issues.jsonl", "--existing", "merge", "--dry-run"],
        ),
        Case({"path": "{new}"}, ["{new}"], "not_found"),
        Case({"path": "{folder}"}, ["{folder}"], "input"),
    ],
    "graph.export": [
        Case({"path": "{new}"}, ["{new}"]),
        Case({"path": "{crumbs}/issues.jsonl"}, ["{crumbs}/issues.jsonl"], "conflict"),
    ],
}


async def fill_cupboard(u: Universe) -> None:
    """Two crumbs, of which one waits for the other, on a trail, with what can hang on them."""
    cupboard = Cupboard(u)
    things: list[tuple[str, str, Any]] = [
        ("crumbs", "crumb-a", Crumb("alpha", "ready", properties={"priority": "high"})),
        ("crumbs", "crumb-b", Crumb("beta", "ready")),
        ("trails", "trail-a", Trail("first", "to see", "active")),
        ("links", "link-a", Link("child_of", "crumb-b", "crumb-a")),
        ("links", "link-b", Link("belongs_to", "crumb-b", "trail-a")),
        ("stashes", "stash-n", Stash("n", "counter")),
        ("stashes", "stash-l", Stash("l", "lock")),
        ("metadata", "meta-a", Metadata("crumb-b", "comments", "somebody said so")),
    ]
    for table, id, entity in things:
        await cupboard.table(table).set(id, entity)


def fill_crumbs(path: Path) -> None:
    """A folder of the original program with an odd line, and a file of issues beside."""
    path.mkdir()
    crumb = {"crumb_id": "crumb-z", "name": "zeta", "state": "ready", "created_at": "2026-02-12T08:15:00Z"}
    (path / "crumbs.jsonl").write_text(json.dumps(crumb) + "\nno line\n")
    issues = [{"id": "bd-1", "title": "one", "status": "open"}, {"id": "bd-2", "issue_type": "feature"}]
    (path / "issues.jsonl").write_text("".join(json.dumps(issue) + "\n" for issue in issues))
