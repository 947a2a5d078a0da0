"""The gate: every method that changes something is refused to whoever may not, and changes nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import dgent
from dgent.blocks import Block, Field, Groups, Library, Request, Roster, SectionShape, Shape, Template
from dgent.blocks.access import audit
from dgent.blocks.errors import BlockNotFound, ConsentRefused, PermissionDenied, TemplateError
from dgent.model.query import Query
from tests.blocks.agents import Open, library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]

Call = Callable[[Any], Awaitable[Any]]

# What only reads. Every other public method of these classes must have a row in one of the tables below.
READING: dict[type, set[str]] = {
    Block: {"text", "value", "current", "history", "at", "diff", "branches", "checkpoints", "entries"},
    Library: {
        *("get", "get_by_id", "get_archived", "list", "list_deleted", "list_shares", "sizes"),
        *("list_archive_shares",),
        *("refusals", "activity", "search"),
        # What a folder brings goes through the blocks, one by one; without news it only reads.
        "sync",
        *("notices", "render", "context"),  # they keep what was seen, which is nobody else's matter
    },
    Roster: {"get", "list"},
    Groups: {"get", "list"},
}
PATCH = "@@ -1 +1 @@\n-I like short answers.\n+Ok.\n"
EDITS: dict[str, tuple[str, Call]] = {
    "append": ("text", lambda b: b.append("x")),
    "write": ("text", lambda b: b.write("x")),
    "replace": ("text", lambda b: b.replace("I", "x")),
    "edit_range": ("text", lambda b: b.edit_range(1, 1, "x")),
    "patch": ("text", lambda b: b.patch(PATCH)),
    "insert": ("text", lambda b: b.insert(0, "x")),
    "edit_many": ("text", lambda b: b.edit_many([{"old": "short", "new": "x"}])),
    "insert_item": ("list", lambda b: b.insert_item("x")),
    "set_item": ("list", lambda b: b.set_item(0, "x")),
    "move_item": ("list", lambda b: b.move_item(0, 0)),
    "delete_item": ("list", lambda b: b.delete_item(0)),
    "set_field": ("map", lambda b: b.set_field("name", "x")),
    "clear_field": ("map", lambda b: b.clear_field("name")),
    "append_to_field": ("map", lambda b: b.append_to_field("tags", "x")),
    "remove_from_field": ("map", lambda b: b.remove_from_field("tags", 0)),
    "increment": ("map", lambda b: b.increment("count")),
    "add_node": ("tree", lambda b: b.add_node({"x": 1})),
    "set_node": ("tree", lambda b: b.set_node("0@0", {"x": 1})),
    "move_node": ("tree", lambda b: b.move_node("0@0")),
    "delete_node": ("tree", lambda b: b.delete_node("0@0")),
    "log": ("log", lambda b: b.log("x")),
    "rollback": ("text", lambda b: b.rollback(1)),
    "undo": ("text", lambda b: b.undo()),
    "redo": ("text", lambda b: b.redo()),
    "visit": ("text", lambda b: b.visit(1)),
    "checkpoint": ("text", lambda b: b.checkpoint("first")),
    "drop_checkpoint": ("text", lambda b: b.drop_checkpoint("first")),
    "redact": ("text", lambda b: b.redact(1)),
    "compact": ("text", lambda b: b.compact(1)),
}
MODES: dict[str, tuple[str, Call]] = {
    "replace all": ("text", lambda b: b.replace("I", "x", which="all")),
    "replace nth": ("text", lambda b: b.replace("I", "x", which=1)),
    "replace by pattern": ("text", lambda b: b.replace("I|l", "x", regex=True)),
    "append to a list": ("list", lambda b: b.append("x")),
    "append to a log": ("log", lambda b: b.append("x")),
    "increment a counter": ("counter", lambda b: b.increment(amount=-1)),
    "edit a section": ("composite", lambda b: b.section("notes").write("x")),
}
FIELDS = Shape("map", (Field("name"), Field("tags", "list"), Field("count", "counter")))
SHAPES = {
    "map": FIELDS,
    "composite": Shape("composite", sections=(SectionShape("notes", Shape()), SectionShape("facts", FIELDS))),
}
FIRST: dict[str, Call] = {
    "map": lambda b: b.set_field("tags", ["a"]),
    "counter": lambda b: b.increment(),
    "tree": lambda b: b.add_node({"x": 0}),
    "composite": lambda b: b.section("facts").increment("count"),
}
OF_A_BLOCK: dict[str, Call] = {
    "rename": lambda lib: lib.rename("shared", "other"),
    "describe": lambda lib: lib.describe("shared", description="x"),
    "pin": lambda lib: lib.pin("shared"),
    "retain": lambda lib: lib.retain("shared", 100),
    "view": lambda lib: lib.view("shared", 1, 1),
    "delete": lambda lib: lib.delete("shared"),
    "share": lambda lib: lib.share("shared", with_agent="other"),
    "unshare": lambda lib: lib.unshare("shared", with_agent="scribe"),
}
OF_ONES_OWN: dict[str, Call] = {
    "create": lambda lib: lib.create("new"),
    "restore": lambda lib: lib.restore("gone"),
    "move_folder": lambda lib: lib.move_folder("here", "there"),
    "delete_folder": lambda lib: lib.delete_folder("here"),
}
OF_THE_ROSTER: dict[str, Call] = {
    "create": lambda roster: roster.create("new"),
    "describe": lambda roster: roster.describe("scout", status="archived"),
    "enrol": lambda roster: roster.enrol("new"),
}
OF_GROUPS: dict[str, Call] = {
    "create": lambda groups: groups.create("new"),
    "join": lambda groups: groups.join("team", "scout"),
    "leave": lambda groups: groups.leave("team", "scribe"),
    "delete": lambda groups: groups.delete("team"),
}
OF_THE_LOG: dict[str, Call] = {
    "log_tool": lambda lib: lib.log_tool("search", "found"),
    "log_event": lambda lib: lib.log_event("wake"),
    "log_summary": lambda lib: lib.log_summary("We spoke."),
}
OF_THE_ARCHIVE: dict[str, Call] = {
    "archive": lambda lib: lib.archive("x"),
    "unarchive": lambda lib: lib.unarchive("x"),
    "share_archive": lambda lib: lib.share_archive(with_agent="scribe"),
    "unshare_archive": lambda lib: lib.unshare_archive(with_agent="scribe"),
}
TABLES: dict[type, set[str]] = {
    Block: {*EDITS},
    Library: {*OF_A_BLOCK, *OF_ONES_OWN, *OF_THE_LOG, *OF_THE_ARCHIVE},
    Roster: {*OF_THE_ROSTER},
    Groups: {*OF_GROUPS},
}


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_public_method_is_known_to_read_or_has_a_row_here(kind: type) -> None:
    public = {
        name
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and inspect.iscoroutinefunction(member)
    }
    assert public == READING[kind] | TABLES[kind]


async def state(u: dgent.Universe) -> dict[str, Any]:
    """Everything that is stored, without what was refused."""
    found = await u.query(Query(limit=None), raw=True)
    return {each.id: (each.rev, each.data, each.content) for each in found if each.schema != "block.audit"}


async def shared_block(library: Open, document: str, permission: str) -> Block:
    """A block with two versions, shared with the scribe."""
    owner = library("owner")
    block = await owner.create("shared", template=Template("", SHAPES.get(document, Shape(document))))
    await FIRST.get(document, lambda b: b.append("I like short answers."))(block)
    await owner.agents.create("scribe")
    await owner.agents.create("other")
    await owner.share("shared", with_agent="scribe", permission=permission)
    return block


@pytest.mark.parametrize("edit", {**EDITS, **MODES})
@pytest.mark.parametrize("trust, permission", [("untrusted", "admin"), ("partner", "read_only")])
async def test_every_edit_is_refused(
    u: dgent.Universe, library: Open, edit: str, trust: str, permission: str
) -> None:
    kind, call = {**EDITS, **MODES}[edit]
    await shared_block(library, kind, permission)
    handle = await library("scribe").get("shared")
    handle._permissions = library("scribe", trust=trust)._permissions
    before = await state(u)
    with pytest.raises(PermissionDenied):
        await call(handle)
    assert await state(u) == before
    [refusal] = await library("owner").refusals()
    assert (refusal.agent, refusal.trust, refusal.owner, refusal.label) == (
        *("scribe", trust, "owner", "shared"),
    )
    assert refusal.verdict == "deny" and refusal.reason


@pytest.mark.parametrize("what", OF_A_BLOCK)
@pytest.mark.parametrize(
    "trust, permission",
    [("untrusted", "admin"), ("conversant", "admin"), ("partner", "read_only"), ("partner", "read_write")],
)
async def test_every_change_of_a_card_or_of_shares_is_refused(
    u: dgent.Universe, library: Open, what: str, trust: str, permission: str
) -> None:
    await shared_block(library, "text", permission)
    before = await state(u)
    with pytest.raises(PermissionDenied):
        await OF_A_BLOCK[what](library("scribe", trust=trust))
    assert await state(u) == before
    assert len(await library("scribe").refusals()) == 1


@pytest.mark.parametrize("trust", ["untrusted", "conversant"])
@pytest.mark.parametrize("what", OF_ONES_OWN)
async def test_who_is_not_trusted_makes_no_blocks(
    u: dgent.Universe, library: Open, what: str, trust: str
) -> None:
    await library().create("gone")
    await library().delete("gone")
    await library().create("here/a")
    before = await state(u)
    with pytest.raises(PermissionDenied):
        await OF_ONES_OWN[what](library(trust=trust))
    assert await state(u) == before
    assert len(await library().refusals()) == 1


@pytest.mark.parametrize("trust", ["untrusted", "conversant"])
@pytest.mark.parametrize(
    "kind, what", [*(("agents", each) for each in OF_THE_ROSTER), *(("groups", each) for each in OF_GROUPS)]
)
async def test_who_is_not_trusted_changes_no_agents_and_groups(
    u: dgent.Universe, library: Open, scout: Library, scribe: Library, kind: str, what: str, trust: str
) -> None:
    await scout.groups.create("team")
    await scout.groups.join("team", "scribe")
    before = await state(u)
    with pytest.raises(PermissionDenied):
        await {"agents": OF_THE_ROSTER, "groups": OF_GROUPS}[kind][what](getattr(library(trust=trust), kind))
    assert await state(u) == before


@pytest.mark.parametrize(
    "what, trust", [("archive", "untrusted"), ("unarchive", "untrusted"), ("unarchive", "conversant")]
)
async def test_who_is_not_trusted_does_not_change_the_archive(
    u: dgent.Universe, library: Open, what: str, trust: str
) -> None:
    with pytest.raises(PermissionDenied):
        await OF_THE_ARCHIVE[what](library(trust=trust))
    assert await state(u) == {}


@pytest.mark.parametrize("what", OF_THE_LOG)
async def test_who_is_not_trusted_writes_no_log(u: dgent.Universe, library: Open, what: str) -> None:
    await library().log_event("wake")
    before = await state(u)
    with pytest.raises(PermissionDenied):
        await OF_THE_LOG[what](library(trust="untrusted"))
    assert await state(u) == before


@pytest.mark.parametrize("name", sorted(READING[Block] - {"at"}))
async def test_who_is_not_trusted_reads_nothing(library: Open, scout: Library, name: str) -> None:
    handle = await scout.get("persona")
    lib = library(trust="untrusted")
    handle._permissions = lib._permissions
    with pytest.raises(PermissionDenied):
        await getattr(handle, name)()
    for reading in (
        *(lib.get("persona"), lib.list(), lib.list_deleted(), lib.list_shares()),
        *(lib.refusals(), lib.activity()),
        *(lib.get_archived("x"), lib.search("x"), lib.notices(), lib.render(), lib.context()),
    ):
        with pytest.raises(PermissionDenied):
            await reading


async def test_who_is_not_the_partner_writes_in_its_own_name(library: Open, scout: Library) -> None:
    handle = await library(trust="friend").get("persona")
    with pytest.raises(PermissionDenied, match="writes as scout"):
        await handle.append("x", by="scribe")
    log = await library(trust="friend").create("events", document="log")
    with pytest.raises(PermissionDenied, match="writes as scout"):
        await log.log("x", by="scribe")
    assert [each.what for each in await scout.refusals()] == ["log", "append"]
    for forged in ({"agent": "scribe"}, {"at": "never"}):
        with pytest.raises(TemplateError, match="stamped"):
            await log.log({"message": "x", **forged})
    await log.log({"message": "x"})
    [entry] = (await log.value())["entries"]
    assert entry["agent"] == "scout" and entry["at"]
    assert (await handle.append("x", by="scout")).by == "scout"
    assert (await (await scout.get("persona")).append("x", by="a human")).by == "a human"


# -- the owner ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permission", ["read_only", "partner", "human", "append"])
async def test_an_owner_manages_a_block_whose_content_it_may_not_change(
    library: Open, permission: str
) -> None:
    lib = library()
    block = await lib.create("rules", text="one\n", permission=permission)
    with pytest.raises(PermissionDenied):
        await block.write("two\n")
    with pytest.raises(PermissionDenied):
        await block.rollback(1)
    assert (await lib.pin("rules")).pinned
    assert (await lib.rename("rules", "law")).label == "law"
    await lib.agents.create("scribe")
    await lib.share("law", with_agent="scribe", permission="admin")
    assert (await library("scribe").get("law")).permission == permission
    await lib.delete("law")
    assert await (await lib.restore("law")).text() == "one\n"


# Every way in which an owner could change what the prompt, or somebody else, sees of its block.
PRESENTING: dict[str, Call] = {
    **{name: call for name, call in OF_A_BLOCK.items() if name != "retain"},
    "describe as archival": lambda lib: lib.describe("shared", kind="archival"),
    "describe with another limit": lambda lib: lib.describe("shared", limit=10**9),
    "describe with less": lambda lib: lib.describe("shared", permission="read_only"),
    "view nothing": lambda lib: lib.view("shared", 100, 1),
    "unpin": lambda lib: lib.pin("shared", False),
    "restore": lambda lib: lib.restore("gone"),
    "restore elsewhere": lambda lib: lib.restore("gone", to="new"),
    "move its folder": lambda lib: lib.move_folder("in", "out"),
    "delete its folder": lambda lib: lib.delete_folder("in"),
}


async def protected(library: Open, permission: str) -> Library:
    """An owner, the partner's, with a block that it may not rewrite, and one that was deleted."""
    owner = library()
    for label in ("shared", "gone", "in/a"):
        await owner.create(label, kind="core", text="one\n", permission=permission)
    await owner.delete("gone")
    await owner.agents.create("other")
    await owner.agents.create("scribe")
    await owner.share("shared", with_agent="scribe", permission="read_only")
    return owner


@pytest.mark.parametrize("permission", ["read_only", "partner", "human", "append"])
@pytest.mark.parametrize("what", PRESENTING)
async def test_a_friend_does_not_get_around_what_protects_a_block(
    u: dgent.Universe, library: Open, what: str, permission: str
) -> None:
    owner = await protected(library, permission)
    before, shown = await state(u), await owner.render()
    asked: list[Request] = []

    def answer(request: Request) -> bool:
        asked.append(request)
        return len(asked) > 1

    friend = library(trust="friend", consent=answer)
    with pytest.raises(ConsentRefused, match="must agree to manage"):
        await PRESENTING[what](friend)
    assert await state(u) == before and await owner.render() == shown
    assert [each.verdict for each in await owner.refusals()] == ["consent"]
    await PRESENTING[what](friend)  # and when somebody agrees, it is asked for once
    assert len(asked) == 2 and asked[0].operation == "manage"
    assert ("a human" if permission == "human" else "the partner") in asked[0].reason


@pytest.mark.parametrize("trust, permission", [("friend", "read_write"), ("partner", "read_only")])
@pytest.mark.parametrize("what", PRESENTING)
async def test_what_is_not_protected_is_managed_without_asking(
    library: Open, what: str, trust: str, permission: str
) -> None:
    await protected(library, permission)
    await PRESENTING[what](library(trust=trust))


@pytest.mark.parametrize("kind", ["core", "working", "archival"])
async def test_only_the_partner_makes_a_block_that_belongs_to_all(
    u: dgent.Universe, library: Open, kind: str
) -> None:
    with pytest.raises(PermissionDenied, match="only the partner"):
        await library(trust="friend").create("news", kind=kind, owner="_constellation_")
    assert await state(u) == {}
    await library().create("news", kind=kind, owner="_constellation_")
    with pytest.raises(PermissionDenied):
        await library(trust="friend").describe("news", kind="core")


async def test_nobody_gives_itself_leave(library: Open) -> None:
    lib = library()
    block = await lib.create("rules", text="one", permission="read_only")
    with pytest.raises(ConsentRefused, match="read_write instead of read_only"):
        await lib.describe("rules", permission="read_write")
    assert (await lib.get("rules")).permission == "read_only"
    asked: list[Request] = []

    async def agree(request: Request) -> bool:
        asked.append(request)
        return True

    await library(consent=agree).describe("rules", permission="read_write")
    assert [(each.what, each.operation) for each in asked] == [("describe", "manage")]
    await block.write("two")
    await lib.describe("rules", permission="read_only")  # less than before needs nobody
    with pytest.raises(PermissionDenied):
        await block.write("three")


# -- consent --------------------------------------------------------------------------------------------


async def test_somebody_is_asked_and_agrees_once(library: Open) -> None:
    asked: list[Request] = []

    def agree(request: Request) -> bool:
        asked.append(request)
        return True

    lib = library(consent=agree)
    block = await lib.create("persona", permission="partner")
    await block.append("I am.")
    assert asked == [Request("scout", "persona", "append", "append", "the partner must agree to append")]
    await block.undo()
    assert [each.what for each in asked] == ["append", "undo"]
    assert await lib.refusals() == []


@pytest.mark.parametrize("answer", [False, None, "yes", 1])
async def test_anything_but_yes_is_no(u: dgent.Universe, library: Open, answer: Any) -> None:
    lib = library(consent=lambda _request: answer)
    block = await lib.create("persona", permission="human")
    before = await state(u)
    with pytest.raises(ConsentRefused):
        await block.append("x")
    assert await state(u) == before
    assert [each.verdict for each in await lib.refusals()] == ["consent"]


async def test_no_answer_in_time_is_no(library: Open) -> None:
    async def never(_request: Request) -> bool:
        await asyncio.sleep(60)
        return True

    lib = library(consent=never, consent_s=0.01)
    block = await lib.create("persona", permission="partner")
    with pytest.raises(ConsentRefused):
        await block.append("x")
    assert await block.text() == ""


async def test_consent_is_asked_again_when_another_must_agree(library: Open) -> None:
    asked: list[str] = []
    lib = library()
    block = await lib.create("persona", permission="partner")

    async def agree(request: Request) -> bool:
        asked.append(request.reason)
        if len(asked) == 1:
            await lib.describe("persona", permission="read_only")
        return True

    block._permissions = library(consent=agree)._permissions
    with pytest.raises(PermissionDenied, match="read_only"):
        await block.append("x")
    assert asked == ["the partner must agree to append"]


# -- races ----------------------------------------------------------------------------------------------


async def test_a_share_that_is_taken_back_stops_an_edit_that_was_allowed(library: Open) -> None:
    owner = library("owner")
    block = await shared_block(library, "text", "append")
    theirs = await library("scribe").get("shared")
    await theirs.append(" one")
    write = theirs._version_log.write

    async def meanwhile(*given: Any) -> Any:
        theirs._version_log.write = write  # type: ignore[method-assign]
        await owner.unshare("shared", with_agent="scribe")
        return await write(*given)

    theirs._version_log.write = meanwhile  # type: ignore[method-assign,assignment]
    with pytest.raises(PermissionDenied, match="not shared"):
        await theirs.append(" two")
    assert await block.text() == "I like short answers. one"
    with pytest.raises(PermissionDenied):
        await theirs.text()


async def test_a_permission_that_changes_meanwhile_is_the_one_that_counts(library: Open) -> None:
    owner = library("owner")
    block = await shared_block(library, "text", "read_write")
    theirs = await library("scribe").get("shared")
    await theirs.append(" one")
    await owner.share("shared", with_agent="scribe", permission="append")
    with pytest.raises(PermissionDenied):
        await theirs.write("all new")
    await theirs.append(" two")
    await owner.share("shared", with_agent="scribe", permission="read_write")
    await theirs.write("all new")
    assert await block.text() == "all new"


async def test_a_limit_that_changes_meanwhile_is_the_one_that_counts(library: Open) -> None:
    lib = library()
    block = await lib.create("notes", limit=10)
    await library().describe("notes", limit=100)
    await block.append("x" * 50)
    await library().describe("notes", limit=20)
    with pytest.raises(dgent.errors.InputError, match="its limit is 20"):
        await block.append("x")


async def test_a_deleted_block_is_not_edited_through_an_old_handle(library: Open) -> None:
    lib = library()
    block = await lib.create("notes")
    await library().delete("notes")
    for use in (block.append("x"), block.text(), block.checkpoint("c")):
        with pytest.raises(BlockNotFound):
            await use
    await lib.restore("notes")
    assert await block.text() == ""


async def test_nothing_is_written_after_a_share_was_taken_back(u: dgent.Universe, library: Open) -> None:
    """However the two race: every version of the recipient is an earlier commit than the end of the share."""
    owner = library("owner")
    await shared_block(library, "text", "append")
    await owner.describe("shared", limit=10**6)

    async def write(name: str) -> None:
        theirs = await library("scribe").get("shared")
        with pytest.raises((PermissionDenied, BlockNotFound)):
            while True:
                await theirs.append(f" {name}")
                began.set()
                await asyncio.sleep(0)  # memory never waits, and would let nobody else run

    async def take_back() -> None:
        await began.wait()
        await owner.unshare("shared", with_agent="scribe")

    for _ in range(5):
        start, began = await u.seq(), asyncio.Event()
        await asyncio.wait_for(asyncio.gather(write("a"), write("b"), take_back()), 30)
        items = [
            (change.seq, item)
            for change in await u.changes(start)
            for item in change.items
            if item.datum is None or item.datum.author == "scribe"
        ]
        [end] = [seq for seq, item in items if item.schema == "block.share" and item.op == "delete"]
        written = [seq for seq, item in items if item.schema == "block.version" and item.op == "put"]
        assert written and max(written) < end
        await owner.share("shared", with_agent="scribe", permission="append")


async def test_of_each_agent_the_newest_refusals_are_kept(
    library: Open, scout: Library, scribe: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "KEPT", 10)
    monkeypatch.setattr(audit, "SLACK", 4)
    await scout.share("persona", with_agent="scribe", permission="read_only")
    guest = library("guest", trust="untrusted")
    with pytest.raises(PermissionDenied):
        await guest.list()
    theirs = await scribe.get("persona")
    for n in range(40):
        for refused in (theirs.append(str(n)), theirs.write(str(n))):
            with pytest.raises(PermissionDenied):
                await refused
        assert len(await scribe.refusals()) <= 14
    assert [each.what for each in await scribe.refusals()][:4] == ["write", "append"] * 2
    assert 10 <= len(await scribe.refusals()) <= 14
    assert len(await library("guest").refusals()) == 1  # those of others stay
