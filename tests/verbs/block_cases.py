"""One call of each verb of blocks, and the blocks that they start from."""

from __future__ import annotations

from dgent import Universe
from dgent.blocks import Library
from tests.verbs.case import Case

NOBODY = [Case({"label": "nobody"}, ["nobody"], "block_not_found")]
PATCH = "@@ -1 +1 @@\n-one\n+uno\n"

BLOCK_CASES: dict[str, list[Case]] = {
    "block.create": [
        Case(
            {"label": "new", "text": "some words", "description": "d", "limit": 50, "kind": "core"},
            ["new", "some", "words", "-d", "d", "--limit", "50", "-k", "core"],
        ),
        Case(
            {"label": "todo", "template": "task_list", "text": '[{"title": "x"}]'},
            ["todo", '[{"title": "x"}]', "-t", "task_list"],
        ),
        Case(
            {"label": "todo", "template": "task_list", "value": [{"title": "x"}]},
            ["todo", "--value", '[{"title": "x"}]', "-t", "task_list"],
        ),
        Case({"label": "notes"}, ["notes"], "label_taken"),
        Case({"label": "x", "template": "odd"}, ["x", "-t", "odd"], "template"),
        Case({"label": "x", "text": "long", "limit": 3}, ["x", "long", "--limit", "3"], "limit_exceeded"),
    ],
    "block.list": [Case({}, []), Case({"shared": True, "kind": "odd"}, ["-s", "-k", "odd"], "input")],
    "block.get": [
        Case({"label": "notes"}, ["notes"]),
        Case({"label": "card", "section": "who"}, ["card", "--section", "who"]),
        *NOBODY,
    ],
    "block.info": [Case({"label": "notes"}, ["notes"]), *NOBODY],
    "block.describe": [
        Case({"label": "notes", "limit": 9000}, ["notes", "--limit", "9000"]),
        Case({"label": "notes", "template": "persona"}, ["notes", "-t", "persona"]),
        Case({"label": "notes", "template": "task_list"}, ["notes", "-t", "task_list"], "wrong_kind"),
        Case({"label": "notes"}, ["notes"], "input"),
    ],
    "block.rename": [
        Case({"label": "notes", "to": "other"}, ["notes", "other"]),
        Case({"label": "notes", "to": "card"}, ["notes", "card"], "label_taken"),
    ],
    "block.move-folder": [
        Case({"folder": "projects", "to": "old/projects"}, ["projects", "old/projects"], "block_not_found"),
        Case({"folder": "", "to": "x"}, ["", "x"], "input"),
    ],
    "block.delete-folder": [Case({"folder": "projects"}, ["projects"], "block_not_found")],
    "block.pin": [Case({"label": "notes"}, ["notes"]), *NOBODY],
    "block.unpin": [Case({"label": "notes"}, ["notes"])],
    "block.vouch": [Case({"label": "notes"}, ["notes"])],
    "block.archive": [
        Case({"label": "notes"}, ["notes"]),
        Case({"label": "me"}, ["me"], "wrong_kind"),
    ],
    "block.view": [
        Case({"label": "notes", "start": 2, "lines": 1}, ["notes", "2", "1"]),
        Case({"label": "notes", "start": 0, "lines": 1}, ["notes", "0", "1"], "input"),
    ],
    "block.share": [
        Case({"label": "notes", "with_agent": "scribe"}, ["notes", "-w", "scribe"]),
        Case({"label": "notes", "with_agent": "scrib"}, ["notes", "-w", "scrib"], "agent_not_found"),
        Case({"label": "notes"}, ["notes"], "input"),
    ],
    "block.unshare": [
        Case({"label": "card", "with_group": "team"}, ["card", "-g", "team"]),
        Case({"label": "notes", "with_group": "team"}, ["notes", "-g", "team"], "not_found"),
    ],
    "block.shares": [Case({}, [])],
    "block.delete": [Case({"label": "notes"}, ["notes"]), *NOBODY],
    "block.restore": [Case({"label": "gone", "to": "back"}, ["gone", "--to", "back"]), *NOBODY],
    "block.append": [
        Case({"label": "notes", "text": "and more"}, ["notes", "and", "more"]),
        Case({"label": "tasks", "text": '{"title": "x"}'}, ["tasks", '{"title": "x"}']),
        Case({"label": "tasks", "value": {"title": "x"}}, ["tasks", "--value", '{"title": "x"}']),
        Case({"label": "seen", "text": "x", "expect": 1}, ["seen", "x", "--expect", "1"], "input"),
        Case({"label": "notes"}, ["notes"], "input"),
        Case({"label": "rules", "text": "x"}, ["rules", "x"], "consent_refused"),
    ],
    "block.write": [
        Case({"label": "notes", "text": "new"}, ["notes", "new"]),
        Case(
            {"label": "notes", "text": "x", "expect": 9}, ["notes", "x", "--expect", "9"], "version_conflict"
        ),
        Case({"label": "card", "text": "x"}, ["card", "x"], "wrong_kind"),
    ],
    "block.replace": [
        Case({"label": "notes", "old": "one", "new": "1", "all": True}, ["notes", "one", "1", "-a"]),
        Case({"label": "notes", "old": "nine"}, ["notes", "nine"], "no_match"),
    ],
    "block.patch": [
        Case({"label": "notes", "patch": PATCH}, ["notes", PATCH]),
        Case({"label": "notes", "patch": "odd"}, ["notes", "odd"], "no_match"),
    ],
    "block.edit": [
        Case({"label": "notes", "start": 2, "end": 2, "text": "zwei"}, ["notes", "2", "2", "zwei"]),
        Case({"label": "notes", "start": 9, "end": 9}, ["notes", "9", "9"], "no_match"),
    ],
    "block.insert": [
        Case({"label": "notes", "line": 1, "text": "anderthalb"}, ["notes", "1", "anderthalb"]),
        Case({"label": "notes", "line": 9, "text": "x"}, ["notes", "9", "x"], "no_match"),
    ],
    "block.edit-many": [
        Case(
            {"label": "notes", "edits": [{"old": "two", "new": "2"}]},
            ["notes", '[{"old": "two", "new": "2"}]'],
        ),
        Case({"label": "notes", "edits": [{"old": "two"}]}, ["notes", '[{"old": "two"}]'], "input"),
    ],
    "block.set-field": [
        Case(
            {"label": "card", "field": "name", "value": "Bo", "section": "who"},
            ["card", "name", "Bo", "--section", "who"],
        ),
        Case({"label": "profile", "field": "energy_level", "value": 7}, ["profile", "energy_level", "7"]),
        Case({"label": "card", "field": "odd", "value": 1}, ["card", "odd", "1"], "wrong_kind"),
        Case({"label": "card"}, ["card"], "input"),
    ],
    "block.clear-field": [
        Case({"label": "profile", "field": "preferences"}, ["profile", "preferences"]),
        Case({"label": "profile", "field": "name"}, ["profile", "name"], "template"),
    ],
    "block.append-to-field": [
        Case({"label": "profile", "field": "preferences", "value": "tea"}, ["profile", "preferences", "tea"]),
    ],
    "block.remove-from-field": [
        Case({"label": "profile", "field": "preferences", "place": 1}, ["profile", "preferences", "1"]),
        Case(
            {"label": "profile", "field": "preferences", "place": 0},
            ["profile", "preferences", "0"],
            "no_match",
        ),
    ],
    "block.increment": [
        Case({"label": "count"}, ["count"]),
        Case({"label": "count", "amount": -2}, ["count", "--amount", "-2"]),
        Case({"label": "notes"}, ["notes"], "wrong_kind"),
    ],
    "block.insert-item": [
        Case(
            {"label": "tasks", "value": {"title": "x"}, "place": 1},
            ["tasks", '{"title": "x"}', "--place", "1"],
        ),
    ],
    "block.set-item": [
        Case({"label": "tasks", "place": 2, "value": {"done": True}}, ["tasks", "2", '{"done": true}']),
        Case({"label": "tasks", "place": 9, "value": {}}, ["tasks", "9", "{}"], "no_match"),
    ],
    "block.move-item": [Case({"label": "tasks", "place": 2, "to": 1}, ["tasks", "2", "1"])],
    "block.delete-item": [Case({"label": "tasks", "place": 1}, ["tasks", "1"])],
    "block.add-node": [Case({"label": "tree", "value": {"title": "x"}}, ["tree", '{"title": "x"}'])],
    "block.set-node": [
        Case({"label": "tree", "node": "odd", "value": {}}, ["tree", "odd", "{}"], "no_match"),
    ],
    "block.move-node": [Case({"label": "tree", "node": "odd"}, ["tree", "odd"], "no_match")],
    "block.delete-node": [Case({"label": "tree", "node": "odd"}, ["tree", "odd"], "no_match")],
    "block.history": [
        Case({"label": "notes", "limit": 2, "offset": 1}, ["notes", "-n", "2", "--offset", "1"]),
        Case({"label": "notes", "limit": 0}, ["notes", "-n", "0"], "input"),
        *NOBODY,
    ],
    "block.diff": [
        Case({"label": "notes", "before": "first", "after": "3"}, ["notes", "first", "3"]),
        Case({"label": "notes", "before": "99"}, ["notes", "99"], "version_not_found"),
    ],
    "block.at": [
        Case({"label": "notes", "version": "1"}, ["notes", "1"]),
        Case({"label": "notes", "version": "frist"}, ["notes", "frist"], "version_not_found"),
        Case({"label": "notes", "version": "2001-01-01"}, ["notes", "2001-01-01"], "version_not_found"),
    ],
    "block.rollback": [Case({"label": "notes", "version": "first"}, ["notes", "first"])],
    "block.undo": [
        Case({"label": "notes"}, ["notes"]),
        Case({"label": "card"}, ["card"], "version_not_found"),
    ],
    "block.redo": [Case({"label": "notes"}, ["notes"])],
    "block.visit": [Case({"label": "notes", "version": "1"}, ["notes", "1"])],
    "block.branches": [Case({"label": "notes"}, ["notes"])],
    "block.checkpoint": [
        Case({"label": "notes", "name": "now"}, ["notes", "now"]),
        Case({"label": "notes", "name": "first"}, ["notes", "first"], "name_taken"),
    ],
    "block.checkpoints": [Case({"label": "notes"}, ["notes"])],
    "block.redact": [
        Case({"label": "notes", "first": 2}, ["notes", "2", "--yes"]),
        Case({"label": "notes", "first": 0}, ["notes", "0", "--yes"], "input"),
    ],
    "block.compact": [
        Case({"label": "notes", "keep": 1}, ["notes", "--keep", "1", "--yes"]),
        Case({"label": "notes"}, ["notes", "--yes"], "input"),
    ],
    "block.retain": [
        Case({"label": "notes", "keep": 64}, ["notes", "64", "--yes"]),
        Case({"label": "notes", "keep": 0}, ["notes", "0", "--yes"], "input"),
    ],
    "block.drop-checkpoint": [
        Case({"label": "notes", "name": "first"}, ["notes", "first", "--yes"]),
        Case({"label": "notes", "name": "frist"}, ["notes", "frist", "--yes"], "version_not_found"),
    ],
    "block.sync": [
        Case({"folder": "{new}"}, ["{new}"]),
        Case({"folder": "{new}", "dry_run": True}, ["{new}", "--dry-run"]),
        Case({"folder": "{exported}"}, ["{exported}"], "input"),
    ],
    "block.notices": [Case({}, []), Case({"mark": True}, ["--mark"])],
    "block.activity": [
        Case({"limit": 3, "since": "1"}, ["-n", "3", "--since", "1"]),
        Case({"limit": 0}, ["-n", "0"], "input"),
    ],
    "block.refusals": [Case({"limit": 3}, ["-n", "3"]), Case({"limit": 0}, ["-n", "0"], "input")],
    "block.render": [Case({"budget": 500}, ["-b", "500"])],
    "block.search": [
        Case({"query": "one two"}, ["one", "two"]),
        Case({"query": "kettle", "tag": ("tea",), "kind": "entry"}, ["kettle", "-t", "tea", "-k", "entry"]),
        Case({"query": "x", "limit": 0}, ["x", "-n", "0"], "input"),
    ],
    "archive.insert": [
        Case({"text": "some tea", "tag": ("tea",)}, ["some", "tea", "-t", "tea"]),
        Case({"text": " "}, [" "], "input"),
    ],
    "archive.get": [
        Case({"id": "nothing"}, ["nothing"], "entry_not_found"),
    ],
    "archive.search": [Case({"query": "kettle"}, ["kettle"])],
    "archive.share": [
        Case({"with_group": "nobody"}, ["--with-group", "nobody"], "agent_not_found"),
        Case({}, [], "input"),
    ],
    "archive.unshare": [Case({}, [], "input")],
    "archive.shares": [Case({}, [])],
    "archive.delete": [Case({"id": "nothing"}, ["nothing"], "entry_not_found")],
    "agent.create": [
        Case({"name": "newcomer", "description": "d"}, ["newcomer", "-d", "d"]),
        Case({"name": "scribe"}, ["scribe"], "name_taken"),
    ],
    "agent.list": [Case({}, []), Case({"status": "odd"}, ["-s", "odd"], "input")],
    "agent.get": [
        Case({"name": "scribe"}, ["scribe"]),
        Case({"name": "scrib"}, ["scrib"], "agent_not_found"),
    ],
    "agent.prime": [
        Case({}, []),
        Case({"speak": "tools"}, ["--speak", "tools"]),
        Case({"speak": "song"}, ["--speak", "song"], "input"),
    ],
    "agent.describe": [
        Case({"name": "eve", "description": "d"}, ["eve", "-d", "d"]),
        Case({"name": "eve"}, ["eve"], "input"),
    ],
    "group.create": [
        Case({"name": "choir", "description": "d"}, ["choir", "-d", "d"]),
        Case({"name": "team"}, ["team"], "name_taken"),
    ],
    "group.list": [Case({}, [])],
    "group.get": [Case({"name": "team"}, ["team"])],
    "group.join": [
        Case(
            {"name": "team", "member": "scribe", "role": "observer", "can": ("look",)},
            ["team", "scribe", "-r", "observer", "-c", "look"],
        ),
        Case({"name": "team", "member": "nobody"}, ["team", "nobody"], "agent_not_found"),
    ],
    "group.leave": [Case({"name": "team", "member": "eve"}, ["team", "eve"])],
    "group.delete": [Case({"name": "team"}, ["team"])],
}


async def fill_blocks(universe: Universe) -> None:
    """Blocks with the same labels for whoever calls: the visitor, and who the store is opened for."""
    schema = {"properties": {"who": {"type": "object", "properties": {"name": {"type": "string"}}}}}
    boss = Library(universe, agent="system")
    await boss.agents.create("scribe")
    await boss.groups.create("team", description="Those who write.")
    for agent in ("eve", "system"):
        library = Library(universe, agent=agent)
        notes = await library.create("notes", text="one\ntwo\n", description="What I note.")
        await notes.checkpoint("first")
        for line in ("three", "four"):
            await notes.append(f"{line}\n", message="one more")
        await notes.undo()
        await library.create("card", template=schema, value={"who": {"name": "Ann"}}, permission="admin")
        await library.create("rules", text="Be kind.", permission="partner")
        await library.create(
            "profile",
            template="partner_profile",
            value={"name": "Ann", "preferences": ["tea"]},
            permission="admin",
        )
        tasks = [{"title": "one"}, {"title": "two"}]
        await library.create("tasks", template="task_list", value=tasks, permission="admin")
        await library.create("count", document="counter")
        await library.create("tree", document="tree", permission="admin")
        await library.create("seen", template="observation_log")
        await library.create("me", template="persona", text="Me.")
        await library.create("gone")
        await library.delete("gone")
        await library.share("card", with_group="team", permission="read_only")
        await library.archive("The kettle is on.", tags=["tea"])
    await boss.groups.join("team", "eve", role="supervisor", capabilities=("write",))
