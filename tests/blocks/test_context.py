"""The context: which blocks are in it and in which order, what is cut, and what has changed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent import clock
from dgent.blocks import Library, errors, headers
from dgent.blocks.context.budget import NAMED, PromptPart, estimate, fit
from dgent.blocks.context.wrapper import escape, quote, tag_name, wrap
from dgent.blocks.record import version_id
from dgent.errors import InputError
from dgent.model.query import Query
from tests.blocks.agents import Counting, Open, library, scout, scribe, u
from tests.blocks.conftest import Rival

__all__ = ["library", "scout", "scribe", "u"]

TAGS = re.compile(r"^<(/?)(block|memory):(\S+?)(?: [^\n]*)?>$", re.MULTILINE)


def tags(text: str) -> list[str]:
    """The names in the opening tags, each of which must be closed before the next one opens."""
    found = [(mark == "/", f"{kind}:{name}") for mark, kind, name in TAGS.findall(text)]
    assert [closes for closes, _ in found] == [False, True] * (len(found) // 2)
    assert [name for _, name in found[::2]] == [name for _, name in found[1::2]]
    return [name for closes, name in found if not closes]


# -- which blocks ---------------------------------------------------------------------------------------


async def test_the_order_is_fixed(scout: Library, scribe: Library) -> None:
    await scout.create("zeal", kind="core", text="z")
    await scout.create("alpha", kind="core", text="a")
    await scout.create("pinned", pinned=True)
    await scout.create("asked", pinned=False)
    await scout.create("idle", pinned=False)
    await scout.create("old", kind="archival")
    await scout.log_event("wake")
    await scribe.create("rules", kind="core")
    await scribe.share("rules", with_agent="scout")
    await scribe.create("plan", pinned=False)
    await scribe.share("plan", with_agent="scout")
    await scout.create("all", kind="core", owner="_constellation_")
    text = await scout.render(referenced=["asked", "scribe/plan", "nonsense"], changes=False)
    assert tags(text) == [
        *("block:alpha", "block:zeal", "block:all", "block:rules", "block:persona", "block:pinned"),
        *("block:asked", "block:plan", "block:log", "memory:others"),
    ]
    assert '<block:rules permission="append" version="1" shared_from="scribe">' in text
    assert text == await scout.render(referenced=["asked", "scribe/plan"], changes=False)
    assert "block:asked" in tags(await scout.render(referenced="asked"))


async def test_blocks_that_are_not_shown_are_named_at_the_end(scout: Library, scribe: Library) -> None:
    await scout.create("shown", text="s")
    await scout.create("notes", pinned=False)
    await scout.create("old", kind="archival")
    await scribe.create("plan", kind="archival")
    await scribe.share("plan", with_agent="scout")
    found = await scout.context(changes=False)
    assert tags(found.text)[-1] == "memory:others" and "block:shown" in tags(found.text)
    assert found.others == ("notes", "old", "scribe/plan")
    assert "notes (working), old (archival), scribe/plan (archival)" in found.text
    referenced = await scout.context(referenced=["notes"], changes=False)
    assert referenced.others == ("old", "scribe/plan") and "block:notes" in tags(referenced.text)
    for number in range(20):
        await scout.create(f"n{number:02}", kind="archival")
    many = (await scout.context(changes=False)).text
    assert many.count("(archival)") + many.count("(working)") == 12 and ", and more" in many


async def test_a_new_block_is_in_the_context_unless_it_is_not_to_be(scout: Library) -> None:
    await scout.create("seen", text="x")
    await scout.create("unseen", text="y", pinned=False)
    found = await scout.context()
    assert "block:seen" in tags(found.text) and "block:unseen" not in tags(found.text)
    assert "unseen" in found.others


async def test_a_block_is_shown_with_its_description(quick: Library) -> None:
    await quick.create("persona", template="persona", description="Who I am.", text="I like tea.")
    assert await quick.render() == (
        '<block:persona permission="admin" version="1">\nWho I am.\n\nI like tea.\n</block:persona>'
    )


async def test_of_a_long_text_some_lines_are_shown(quick: Library) -> None:
    block = await quick.create("book", kind="core", text="\n".join("abcdef"))
    await quick.view("book", 2, 3)
    assert "\n[lines 2 to 4 of 6]\nb\nc\nd\n</block:book>" in await quick.render()
    assert await block.text() == "a\nb\nc\nd\ne\nf"
    await quick.view("book", 5, 3)
    assert "\n[lines 5 to 6 of 6]\ne\nf\n</block:book>" in await quick.render()
    await quick.view("book", 7, 2)
    assert "[lines 7 to 8 are not there: the text has 6]" in await quick.render()
    await quick.view("book")
    assert "[lines" not in await quick.render()
    for start, lines in ((0, 1), (1, 0), (1, True), ("1", 1)):
        with pytest.raises(InputError):
            await quick.view("book", start, lines)  # type: ignore[arg-type]
    await quick.create("list", document="list")
    with pytest.raises(errors.WrongKind):
        await quick.view("list", 1, 1)


async def test_there_may_be_nothing_to_show(quick: Library) -> None:
    assert await quick.render() == ""
    assert (await quick.context(0)).tokens == 0


async def test_an_edit_of_anybody_is_seen_at_once(lib: Library, rival: Rival) -> None:
    await lib.create("persona", kind="core", text="one")
    other = await (await rival()).get("persona")
    for n in range(8):
        await other.append(f" {n}")
        assert (await other.text()) in await lib.render()
    await other.undo()
    assert await other.text() in await lib.render()
    await (await rival()).describe("persona", description="New words.")
    assert "New words." in await lib.render()


async def test_blocks_with_many_versions_and_folded_ones_are_read_at_once(quick: Library) -> None:
    texts = {}
    for label, edits in {"none": 0, "three": 3, "four": 4, "many": 70, "folded": 200}.items():
        block = await quick.create(label, kind="core", limit=10_000)
        for n in range(edits):
            await block.append(f"{n}.")
        texts[label] = await block.text()
    fresh = Library(quick._universe, agent="scout")
    for _ in range(2):
        text = await fresh.render()
        assert all(f"\n{each}\n</block:{label}>" in text for label, each in texts.items())


async def test_a_hundred_blocks_need_no_more_reads_than_one(quick: Library) -> None:
    counting = Counting(quick._universe.backend)
    async with dgent.open(backend=counting, author="scout") as universe:
        reads = []
        for count in (1, 100):
            for n in range(count):
                await quick.create(f"{count}-{n}", kind="core", text="x")
            for _ in range(2):
                lib = Library(universe, agent="scout")
                counting.asked = 0
                assert len(tags(await lib.render())) == count + (count > 1)
                cold, counting.asked = counting.asked, 0
                await lib.render()
                reads.append((cold, counting.asked))
        assert reads[0] == reads[-1] and max(reads[-1]) < 12


async def test_a_block_that_cannot_be_read_does_not_hide_the_others(quick: Library) -> None:
    await quick.create("a", kind="core", text="still here")
    broken = await quick.create("broken", kind="core", text="x")
    later = await quick.create("later", kind="core", text="x")
    version = await quick._universe.get(version_id(broken.id, 1), raw=True)
    await quick._universe.put(version.replace(content=b"no document"))
    card = await quick._universe.get(later.id)
    await quick._universe.store(card.replace(value=replace(card.value, document="hologram")))
    text = await Library(quick._universe, agent="scout").render()
    assert tags(text) == ["block:a", "block:broken", "block:later"]
    assert "still here" in text and "[this block cannot be read: " in text and "{content: x}" in text


async def test_who_is_not_trusted_sees_nothing(library: Open, scout: Library) -> None:
    with pytest.raises(errors.PermissionDenied):
        await library("scout", trust="untrusted").render()
    assert "persona" not in await library("scribe").render()


# -- the budget -----------------------------------------------------------------------------------------


async def test_what_there_is_no_room_for_is_named(quick: Library) -> None:
    for n in range(5):
        await quick.create(f"core{n}", kind="core", text="word " * 100)
    await quick.create("work", pinned=True, text="word " * 100)
    whole = await quick.context()
    assert whole.tokens == estimate(whole.text) and len(whole.shown) == 6
    made = await quick.context(whole.tokens // 2)
    assert made.tokens <= whole.tokens // 2
    assert made.shown == ("core0", "core1") and made.shortened == ("core2",)
    assert made.cut == ("core3", "core4", "work")
    assert "not shown for want of room: 3 (core3, core4, work)" in made.text
    assert "shown in part for want of room: 1 (core2)" in made.text
    assert re.search(r"\[cut: \d+ of 500 characters are not shown\]", made.text)
    assert tags(made.text) == ["block:core0", "block:core1", "block:core2", "memory:notice"]
    assert whole.text.startswith(made.text[:1000])


async def test_a_priority_is_kept_longer_and_stays_in_its_place(quick: Library) -> None:
    for n in range(5):
        await quick.create(f"core{n}", kind="core", text="word " * 100)
    made = await quick.context(300, priorities={"core4": 2, "core3": 1})
    assert made.shown == ("core4",) and tags(made.text)[-2:] == ["block:core4", "memory:notice"]


async def test_another_way_to_count_tokens(quick: Library) -> None:
    for n in range(5):
        await quick.create(f"core{n}", kind="core", text="word " * 100)
    made = await quick.context(250, tokens=lambda text: len(text.split()))
    assert len(made.text.split()) <= 250 and made.tokens == len(made.text.split())
    assert made.cut


@pytest.mark.parametrize("wrong", [-1, 1.5, "12", True])
async def test_a_budget_is_a_number(quick: Library, wrong: object) -> None:
    with pytest.raises(InputError):
        await quick.render(budget_tokens=wrong)  # type: ignore[arg-type]


# -- what changed -----------------------------------------------------------------------------------------


async def test_what_others_changed_since_the_agent_looked_is_told(scout: Library, scribe: Library) -> None:
    await scout.create("rules", kind="core", text="Be kind.\n")
    await scout.share("rules", with_agent="scribe", permission="append")
    assert "memory:changes" not in await scout.render(mark=True)
    theirs = await scribe.get("rules")
    await theirs.append("Be brief.\n")
    await (await scout.get("rules")).append("Be early.\n")
    for mark in (False, True):
        text = await scout.render(mark=mark)
        assert tags(text)[-1] == "memory:changes"
        assert "rules: version 1 is 3 now, by scribe" in text and "\n+Be brief.\n" in text
    assert "memory:changes" not in await scout.render()
    assert "scout/rules: new to you, by scout" in await scribe.render()


async def test_what_others_changed_is_told_though_it_is_folded_since(scout: Library, scribe: Library) -> None:
    mine = await scout.create("rules", kind="core", text="Be kind.\n", limit=10_000)
    await scout.share("rules", with_agent="scribe", permission="append")
    await scout.render(mark=True)
    await (await scribe.get("rules")).append("Be brief.\n")
    for n in range(200):
        await mine.append(f"{n} ")
    assert "rules: version 1 is 202 now, by scribe" in await scout.render(mark=True)
    assert "memory:changes" not in await scout.render()


async def test_only_what_was_shown_whole_counts_as_seen(scout: Library, scribe: Library) -> None:
    await scout.create("rules", kind="core", text="word " * 200)
    await scout.share("rules", with_agent="scribe", permission="append")
    await scout.render(mark=True)
    await (await scribe.get("rules")).append("more")
    await scout.render(budget_tokens=150, mark=True)
    assert "rules: version 1 is 2 now" in await scout.render()


async def test_what_was_done_since_a_time_is_told(scout: Library, scribe: Library) -> None:
    start = clock.now()
    await scout.create("rules", kind="core")
    await (await scout.get("rules")).append("x")
    text = await scout.render(since=start)
    assert tags(text)[-1] == "memory:activity" and "you: append rules" in text
    assert "memory:activity" not in await scribe.render(since=start)


async def test_only_headers_of_blocks_that_are_wanted_are_read(
    quick: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        await quick.create(f"old {n}", kind="archival")
        await quick.create(f"idle {n}", pinned=False)
    other = await quick.create("a/b", pinned=False)
    for label, kind in (("me", "core"), ("seen", "log"), ("now", "working")):
        await quick.create(label, kind=kind, pinned=kind == "working")
    read: list[str] = []
    recall = quick._universe.recall

    async def counted(query: Query) -> Any:
        found = await recall(query)
        read.extend(each.value.label for each in found if each.schema_name == "block.block")
        return found

    monkeypatch.setattr(quick._universe, "recall", counted)
    assert tags(await quick.render()) == ["block:me", "block:now", "block:seen", "memory:others"]
    shown = {"me", "now", "seen"}
    assert shown <= set(read) and len(read) <= len(shown) + 2 * (NAMED + 1), "and some to be named"
    for named in ("a/b", "scout/a/b", other.id):
        assert "block:a/b" in tags(await quick.render(referenced=named))
    read.clear()
    assert [each.label for each in await quick.list(kind="core")] == ["me"]
    assert [each.label for each in await quick.list(kind="log", shared=True)] == ["seen"]
    assert sorted(read) == ["me", "seen"]
    monkeypatch.setattr(headers, "NEAR", 10)
    read.clear()
    with pytest.raises(errors.BlockNotFound) as missing:
        await quick.get("noww")
    assert "did you mean 'now'" in missing.value.hint and len(read) <= 10


# -- wrappers ---------------------------------------------------------------------------------------------

NASTY = [*"<>/&\"'\n :=%", "block", "BLOCK", "memory", "notice", "persona", "&lt;", "\u200b", "\u2028", "ſ"]
TAGGED = ["</block:persona>", "<block:x>", "</memory:notice>", "< / Block:"]
LOOK_ALIKES = [
    *("</bl\u200bock:x>", "</bl\u00adock:x>", "<\u2060/block>", "</b\u034flock>", "</b\ufe0flock>"),
    *("\uff1c/block:x>", "\ufe64memory:notice\uff1e", "</\uff42\uff4c\uff4f\uff43\uff4b:x>", "\u2039/block>"),
    *("</bl\u043eck:x>", "</m\u0435m\u043er\u0443:x>", "</b1ock>", "</blo\u0301ck>", "</b\x08lock>"),
    *("</\U0001d41b\U0001d425\U0001d428\U0001d41c\U0001d424>", "<\u2215\u3164block>", "</BLOC\u212a>"),
    *("</block\u02d0x>", "<\u4e3fblock:x>", "<\u3033block:x>", "<\u30ceblock:x>", "\u22d6/block:x>"),
    *("</\u0180lock:x>", "</\U0001f171lock:x>", "<block\x1b0", "</Memory\u200bx>"),
]
HOSTILE = st.lists(st.sampled_from([*NASTY, *TAGGED]) | st.text(max_size=5), max_size=30).map("".join)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_content_closes_its_wrapper_or_looks_like_another(label: str, said: str, body: str) -> None:
    tag = f"block:{tag_name(label)}"
    text = wrap(tag, {"permission": said}, body)
    first, *inside, last = text.split("\n")
    assert re.fullmatch(r'<block:\S* permission="[^"<>\n]*">', first) and last == f"</{tag}>"
    assert not re.search(r"<[^\w<>]*(block|memory)\b", "\n".join(inside), re.IGNORECASE)
    assert escape(escape(body)) == escape(body)
    assert not set('<>"\n\r\u2028') & set(quote(said)) and not re.search(r"[\s<>\"'=]", tag)


@pytest.mark.parametrize("body", LOOK_ALIKES)
def test_what_only_looks_like_a_tag_is_escaped_too(body: str) -> None:
    text = escape(f"before {body} after")
    assert text.startswith("before &lt;") and text.endswith(f"{body[1:]} after")
    assert escape(text) == text


def test_what_is_no_tag_stays_as_it_is() -> None:
    for text in (
        "a < b",
        "<b>bold</b>",
        "<blockquote>",
        "if x <block_size:",
        "x << memory_size",
        "&lt;",
        "\u00abtext\u00bb",
    ):
        assert escape(text) == text


PARTS = st.lists(
    st.builds(
        lambda name, body, rank, whole: PromptPart(
            name, f"block:{tag_name(name)}", (), body, (0, rank), whole
        ),
        st.text(max_size=50),
        st.text(max_size=600) | st.integers(1, 3000).map(lambda n: "word\n" * n),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=12,
)
COUNTERS = st.sampled_from([estimate, len, lambda text: len(text.split()) * 3, lambda text: len(text) ** 2])


@given(PARTS, st.integers(0, 3000), COUNTERS)
def test_a_budget_is_never_exceeded(parts: list[PromptPart], budget: int, tokens: object) -> None:
    made = fit(parts, budget, tokens)  # type: ignore[arg-type]
    assert tokens(made.text) == made.tokens <= budget  # type: ignore[operator]
    assert sorted((*made.shown, *made.shortened, *made.cut)) == sorted(part.name for part in parts)
    assert made == fit(parts, budget, tokens)  # type: ignore[arg-type]
    if made.text and (made.cut or made.shortened):
        assert made.text.endswith("</memory:notice>")


@given(PARTS)
def test_without_a_budget_everything_is_there_in_order(parts: list[PromptPart]) -> None:
    made = fit(parts, None)
    assert made.shown == tuple(part.name for part in parts) and not made.cut
    assert made.text == "\n\n".join(part.text() for part in parts)
