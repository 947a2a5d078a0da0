"""The studio in a real browser. The tests share a store, and each changes things of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dgent
from dgent.blocks import Block, Library
from dgent.cupboard import Cupboard
from dgent.store.port.telemetry import TelemetryEvent
from dgent.store.registry import telemetry_for
from tests.soak import first
from tests.studio.browser import Watched
from tests.studio.conftest import Shown
from tests.studio.served import dgent as command
from tests.studio.served import run, start, studio

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROWS = 100_000  # of a table that is looked at page by page

PAGES = {
    "overview": "Commits of the last",
    "timeline": "Every change, the newest first.",  # other tests add to it
    "timeline/20": "Commit 20",
    "memory/scout": "I name what I measured.",
    "memory/scout/persona": "I name what I measured.",
    "memory/scout/persona?tab=history": "the critic asked for figures",
    "memory/scout/persona?tab=tree": "v1 – v2",
    "memory/scout/plan?tab=sharing": "read and write it",
    "memory/-/charter?owner=_constellation_": "We undo rather than hide.",
    "work": "Write the release notes",
    "work/ready": "Waits for other work",
    "work/trails": "try an index on dates",
    "work/lessons": "A cache does not help here",
    "work/graph": "crumb · ready",
    "data": "research.source",
    "data/research.source": "Local-first software",
    "data/witness.mark/ship": "What it came from",
    "search?q=agents": "source-11",
    "chat/scout": "Nothing was said to scout yet.",
}


def write(url: str, work: Callable[[dgent.Universe], Awaitable[object]], author: str = "critic") -> None:
    """Change the store as another program."""

    async def change() -> None:
        async with dgent.open(url, author=author) as universe:
            await work(universe)

    run(change)


@pytest.fixture(autouse=True)
def nothing_went_wrong(shown: Shown) -> Iterator[None]:
    """Fail for errors in the console, for dialogs, and for requests that leave the machine."""
    shown.watched.problems.clear()
    yield
    assert shown.watched.problems == []


def test_every_page_opens_at_every_width(shown: Shown) -> None:
    page = shown.watched.page
    for width in first((380, 3840, 1280), 2):
        page.set_viewport_size({"width": width, "height": 900})
        for path, text in PAGES.items():
            shown.watched.open(path)
            page.locator("main").get_by_text(text).first.wait_for()
            assert not shown.watched.is_wider_than_the_window(), (path, width)
            assert page.locator("main .failure").count() == 0, path
    page.set_viewport_size({"width": 1280, "height": 900})


def test_the_overview_shows_tokens_of_agents(shown: Shown) -> None:
    """As bars by day and a line for each agent; a store without telemetry shows neither."""
    page = shown.watched.open("overview")
    assert page.locator("text=Tokens of the last").count() == 0
    store = telemetry_for(f"{shown.url}.telemetry.db")
    call = {"gen_ai.request.model": "m1", "gen_ai.usage.input_tokens": 1200, "gen_ai.usage.cost": 0.25}
    event = TelemetryEvent("span", data=call, agent="<b>scout</b>", id="only")
    try:
        run(lambda: store.append([event]))
        page.reload()
        page.locator("text=Tokens of the last 14 days").wait_for()
        assert "1,200 tokens, 0.25 in all" in page.locator("main").inner_text()
        assert page.locator("main b", has_text="scout").count() == 0
    finally:
        run(lambda: store.prune(0))
        run(store.close)


def test_the_keyboard_is_enough(shown: Shown) -> None:
    page = shown.watched.open("overview")
    for key, title in zip(
        "123456", ("Overview", "Timeline", "Memory", "Work", "Data", "Search"), strict=True
    ):
        page.keyboard.press(key)
        page.locator("main:not([aria-busy]) h1", has_text=title).wait_for()
        page.locator("body").evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    page.locator("h1", has_text="Overview").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("local-first")
    page.keyboard.press("Enter")
    page.locator("mark", has_text="Local").first.wait_for()
    # All that can be clicked can be reached, and shows that it was.
    shown.watched.open("timeline")
    summary = page.locator("summary").first
    summary.focus()
    page.keyboard.press("Enter")
    page.locator("details[open] .items").first.wait_for()
    assert summary.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    page.locator("body").evaluate("document.activeElement.blur()")
    before = page.evaluate(
        "getComputedStyle(document.body).backgroundColor + document.documentElement.dataset.theme"
    )
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") in ("dark", "light")
    page.keyboard.press("t")
    assert before != page.evaluate("document.documentElement.dataset.theme")


def test_changes_appear_by_themselves(shown: Shown) -> None:
    page = shown.watched.open("timeline")
    page.locator(".dot.on").wait_for()
    write(shown.url, lambda u: u.put(dgent.Datum("arrives", data={"text": "by itself"})))
    page.get_by_text("critic added arrives").wait_for()
    shown.watched.open("work")

    async def add(u: dgent.Universe) -> None:
        await Cupboard(u).add("Appear on the board", state="ready")

    write(shown.url, add)
    page.locator("[data-state=ready] .tile", has_text="Appear on the board").wait_for()


def test_a_commit_is_undone_after_a_question(shown: Shown) -> None:
    write(shown.url, lambda u: u.put(dgent.Datum("mistake", data={"text": "oops"})))
    page = shown.watched.open("timeline")
    entry = page.locator(".log > li").first
    entry.locator("summary").click()
    entry.locator(".items").get_by_text("oops").wait_for()
    entry.get_by_role("button", name="Undo").click()
    page.locator("dialog").get_by_text("as a new commit").wait_for()
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    page.locator("dialog").wait_for(state="detached")
    entry.get_by_role("button", name="Undo").click()
    page.locator("dialog").get_by_role("button", name="Undo it").click()
    page.get_by_text("was undone by commit").wait_for()
    shown.watched.open("data/-/mistake")
    page.get_by_text("It was deleted.").wait_for()


def test_an_edit_that_collides_overwrites_nothing(shown: Shown) -> None:
    page = shown.watched.open("memory/scout/plan")
    page.get_by_role("button", name="Edit").click()
    page.locator("#editor").fill("# Release 2.0\n\nmine\n")

    async def edit(u: dgent.Universe) -> None:
        block = await Library(u, "critic").get("plan", owner="scout")
        await block.append("4. theirs\n", message="forgot one")

    write(shown.url, edit)
    page.locator("#why").fill("a shorter plan")
    page.get_by_role("button", name="Save", exact=True).click()
    conflict = page.locator(".conflict")
    conflict.get_by_text("Not saved: critic saved version 3").wait_for()
    assert "4. theirs" in conflict.inner_text()
    assert "mine" in conflict.inner_text()
    assert page.locator("#editor").input_value() == "# Release 2.0\n\nmine\n"
    conflict.get_by_role("button", name="Save mine on top of version 3").click()
    conflict.wait_for(state="detached")
    page.get_by_text("Saved as version 4.").last.wait_for()  # that of another test may still be there
    shown.watched.open("memory/scout/plan?tab=history")
    page.get_by_text("a shorter plan").wait_for()
    page.get_by_text("forgot one").wait_for()
    # The version of the other is still there, and comes back.
    page.locator(".version", has_text="v3").click()
    page.get_by_role("button", name="Roll back to it").click()
    page.locator("dialog").get_by_role("button", name="Roll back").click()
    page.get_by_text("version 5 says what version 3 said").wait_for()


def test_what_is_no_text_is_edited_item_by_item(shown: Shown) -> None:
    async def make(u: dgent.Universe) -> None:
        memory = Library(u, "scout")
        await memory.create("facts", document="map", value={"host": "alpha", "port": 80})
        await memory.create("steps", document="list", value=["pack", "ship"])
        await memory.create("seen", template="observation_log")
        await memory.create("places", document="tree")
        await memory.create("tally", document="counter")

    async def check(u: dgent.Universe) -> None:
        memory = Library(u, "scout")
        found.update({each.label: await each.value() for each in await memory.list()})
        found["why"] = (await (await memory.get("facts")).history())[0].message

    found: dict[str, Any] = {}
    write(shown.url, make)
    page = shown.watched.page

    def save(text: str, why: str = "") -> None:
        page.locator("#editor").fill(text)
        page.locator("#why").fill(why)
        page.get_by_role("button", name="Save", exact=True).click()
        page.locator("#editor").wait_for(state="detached")

    def do(name: str, label: str | None = None) -> None:
        page.get_by_role("button", name=label or name, exact=True).click()
        page.locator("dialog").get_by_role("button", name="Do it").click()
        page.locator("dialog").wait_for(state="detached")

    shown.watched.open("memory/scout/facts")
    page.get_by_role("button", name="Edit port").click()
    save("8080", "it moved")
    page.get_by_text("8080").wait_for()
    page.get_by_role("button", name="New field").click()
    save("user: ann")
    page.get_by_role("button", name="Edit host").click()
    save("", "gone")
    shown.watched.open("memory/scout/steps")
    page.get_by_role("button", name="New item").click()
    save("rest")
    page.get_by_role("button", name="Edit item 1").click()
    save("pack well")
    page.get_by_text("pack well").wait_for()
    do("Move item 3 up")
    page.locator("main li", has_text="rest").and_(page.locator("main li").nth(1)).wait_for()
    do("Remove item 3")
    page.locator("main li", has_text="ship").wait_for(state="detached")
    shown.watched.open("memory/scout/seen")
    page.get_by_role("button", name="New entry").click()
    save('{"observation": "it rains"}')
    page.get_by_text("it rains").wait_for()
    shown.watched.open("memory/scout/places")
    page.get_by_role("button", name="New node").click()
    save('{"title": "north"}')
    page.get_by_role("button", name="Add below").click()
    save('{"title": "the wall"}')
    page.locator(".list .list").get_by_text("the wall").wait_for()
    shown.watched.open("memory/scout/tally")
    do("Add 1")
    page.locator("main p.big", has_text="1").wait_for()
    write(shown.url, check)
    assert found["facts"] == {"host": "", "port": 8080, "user": "ann"}
    assert found["why"] == "gone"
    assert found["steps"] == {"items": ["pack well", "rest"]}
    assert found["seen"]["entries"][0]["observation"] == "it rains"
    (north,) = found["places"]["nodes"]
    assert (north["data"], north["children"][0]["data"]) == ({"title": "north"}, {"title": "the wall"})
    assert found["tally"] == {"count": 1}


def test_an_item_that_moved_is_found_again_and_one_that_changed_is_not_overwritten(shown: Shown) -> None:
    async def make(u: dgent.Universe) -> None:
        await Library(u, "scout").create("queue", document="list", value=["one", "two"])

    def meanwhile(change: Callable[[Block], Awaitable[object]]) -> None:
        async def work(u: dgent.Universe) -> None:
            await change(await Library(u, "scout").get("queue"))

        write(shown.url, work)

    write(shown.url, make)
    page = shown.watched.open("memory/scout/queue")
    page.get_by_role("button", name="Edit item 2").click()
    page.locator("#editor").fill("two and a half")
    meanwhile(lambda block: block.insert_item("zero", 0, message="first things first"))
    page.get_by_role("button", name="Save", exact=True).click()
    conflict = page.locator(".conflict")
    conflict.get_by_text("Not saved: scout saved version 2").wait_for()
    assert "first things first" in conflict.inner_text()
    conflict.get_by_role("button", name="Save mine on top of version 2").click()
    page.locator("main .item", has_text="two and a half").wait_for()
    assert page.locator("main .item").all_inner_texts() == ["zero", "one", "two and a half"]
    page.get_by_role("button", name="Edit item 2").click()
    page.locator("#editor").fill("mine")
    meanwhile(lambda block: block.set_item(1, "theirs"))
    page.get_by_role("button", name="Save", exact=True).click()
    conflict.get_by_text("What you edited is not there any more.").wait_for()
    assert page.get_by_role("button", name="Save mine").count() == 0
    conflict.get_by_role("button", name="Look at it as it is now").click()
    page.locator("main .item", has_text="theirs").wait_for()
    # Without a text to keep, a collision changes nothing and shows what is there.
    page.get_by_role("button", name="Remove item 1").click()
    meanwhile(lambda block: block.delete_item(0))
    page.locator("dialog").get_by_role("button", name="Do it").click()
    page.get_by_text("Not saved: scout saved version 5 meanwhile.").wait_for()
    page.locator("main .item", has_text="zero").wait_for(state="detached")
    assert page.locator("main .item").all_inner_texts() == ["theirs", "two and a half"]


def test_the_slider_leads_into_the_past(shown: Shown) -> None:
    page = shown.watched.open("timeline")
    slider = page.locator("#as-of")
    slider.focus()
    slider.press("Home")
    page.locator("#past").get_by_text("You are looking at the past").wait_for()
    # Links keep the time; a record that came later is not there yet.
    page.get_by_role("navigation", name="Pages").get_by_text("Data").click()
    page.get_by_role("link", name="research.source").click()
    page.get_by_text("Records as of commit 1.").wait_for()
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("navigation", name="Pages").get_by_text("Work").click()
    page.get_by_text("There was no work yet.").wait_for()
    page.get_by_role("navigation", name="Pages").get_by_text("Memory").click()
    page.get_by_text("No agent had a memory at that time.").wait_for()
    page.get_by_role("navigation", name="Pages").get_by_text("Overview").click()
    page.locator(".figure", has_text="commits").get_by_text("1", exact=True).wait_for()
    page.get_by_role("link", name="Back to now").click()
    page.locator("#past").wait_for(state="hidden")


def test_every_page_turns_into_the_past(shown: Shown) -> None:
    page, seq = shown.watched.page, 0

    async def change(u: dgent.Universe) -> None:
        nonlocal seq
        memory, work = Library(u, "scout"), Cupboard(u)
        route = await memory.create("route", text="north of the wall\n", kind="core")
        await memory.share("route", with_agent="critic", permission="read_write")
        await memory.create("gone", text="beyond the wall\n", kind="core")
        crumb = await work.add("Look back", state="ready")
        await work.comment(crumb, "Once is enough.")
        seq = await u.seq()
        await route.append("came later\n")
        await work.take_one(crumb.id, "critic")
        await work.done(await work.take_one((await work.add("Came later", state="ready")).id, "critic"))
        await memory.delete("gone")

    write(shown.url, change)
    expected = {
        "overview": "Commits of the 14 days before",
        "memory/scout": "beyond the wall",
        "memory/scout/gone": "beyond the wall",
        "memory/scout/gone?tab=history": "1 version",
        "memory/scout/route": f"Version 1, as it was at commit {seq}",
        "memory/scout/persona?tab=tree": "v1 – v2",
        "memory/scout/route?tab=sharing": "read and write it",
        "work": "Look back",
        "work/ready": "Look back",
        "work/trails": "try an index on dates",
        "work/lessons": "A cache does not help here",
        "work/graph": "crumb · ready",
        "data": "research.source",
        "data/witness.mark/ship": "What it came from",
        "search?q=beyond": "wall",
        "timeline": f"Every change up to commit {seq}.",
    }
    for path, text in expected.items():
        shown.watched.open(f"{path}{'&' if '?' in path else '?'}at={seq}")
        page.locator("main").get_by_text(text).first.wait_for()
        assert "ame later" not in page.locator("main").inner_text(), path
        assert page.locator("main .failure").count() == 0, path
        # Nothing can be changed there.
        changing = "Edit|New block|New crumb|Undo|Roll back|Take back|Share|Add|Complete|Abandon|Delete"
        for button in page.locator("main button").all_inner_texts():
            assert not re.fullmatch(changing, button), (path, button)
        assert page.locator("main [draggable=true]").count() == 0, path
    shown.watched.open(f"work?at={seq}")
    page.locator("[data-state=ready] .tile", has_text="Look back").click()
    page.get_by_text("Once is enough.").wait_for()
    assert page.locator("main select, main form").count() == 0
    shown.watched.open("work")
    page.locator("[data-state=taken] .tile", has_text="Look back").wait_for()
    # One step on, the block is as the next commit left it.
    shown.watched.open(f"memory/scout/route?at={seq}")
    page.get_by_role("button", name="One commit later").click()
    page.get_by_text("came later").wait_for()
    shown.watched.open("memory/scout/gone")
    page.get_by_text("scout has no block “gone”.").wait_for()


def test_a_card_is_moved(shown: Shown) -> None:
    page = shown.watched.open("work")
    tile = page.locator(".tile", has_text="Rename the settings page")
    tile.focus()
    tile.press("Alt+ArrowRight")
    page.locator("[data-state=pending] .tile", has_text="Rename the settings page").wait_for()
    card = page.locator("[data-state=pending] .tile", has_text="Rename the settings page")
    card.drag_to(page.locator("[data-state=pebble]"))
    page.locator("[data-state=pebble] .tile", has_text="Rename the settings page").wait_for()


def test_a_trail_is_abandoned_with_a_preview(shown: Shown) -> None:
    page = shown.watched.open("work/trails")
    page.get_by_role("link", name="try an index on dates").click()
    page.get_by_role("button", name="Abandon").click()
    dialog = page.locator("dialog")
    dialog.get_by_text("build it on a copy (taken)").wait_for()
    assert "This removes 3 crumbs" in dialog.inner_text()
    dialog.locator("#lesson").fill("Dates are too even.")
    dialog.get_by_role("button", name="Abandon it").click()
    page.get_by_text("Abandoned: 3 crumbs removed.").wait_for()
    shown.watched.open("work/lessons")
    page.get_by_text("Dates are too even.").wait_for()


def test_many_records_page_by_page(shown: Shown) -> None:
    async def fill(u: dgent.Universe) -> None:
        u.register(dgent.Schema[object]("many.row", indexes=("number",)))
        rows = (
            dgent.Datum(
                f"row-{number:06}",
                schema="many.row",
                schema_version=1,
                data={"number": number, "even": number % 2 == 0},
            )
            for number in range(ROWS)
        )
        await u.put_many(rows)

    write(shown.url, fill)
    page = shown.watched.open("data/many.row")
    seen: set[str] = set()
    for step in range(5):
        page.get_by_text(f"{step * 50 + 1} – {step * 50 + 50}").wait_for()
        rows = page.locator("tbody tr th").all_inner_texts()
        assert len(rows) == 50
        assert not seen & set(rows)
        seen |= set(rows)
        page.locator("#next").click()
    page.locator("#back").click()
    page.get_by_text("201 – 250").wait_for()
    # What has no index is not offered for sorting: it would read every record.
    assert page.get_by_role("button", name="even").count() == 0
    page.get_by_role("button", name="number").click()
    page.locator("tbody tr").first.get_by_text(str(ROWS - 1)).first.wait_for()
    page.locator("#where").fill("number<10")
    page.locator("#where").press("Enter")
    page.get_by_text("1 – 10").wait_for()
    page.get_by_role("button", name="Remove the filter number<10").click()
    page.get_by_text("1 – 50").wait_for()


def test_sign_out_ends_the_session(browser: Browser) -> None:
    with studio("--url", "memory:") as link:
        page = browser.new_page()
        watched = Watched(page, link)
        page.get_by_text("Nothing is stored yet.").wait_for()
        assert page.evaluate("document.cookie") == ""  # scripts cannot read it
        kept = page.context.cookies()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("You are signed out.").wait_for()
        page.context.add_cookies(kept)  # type: ignore[arg-type]
        assert page.request.get(f"{watched.base}/v1/constellations").status == 401
        page.goto(link)
        page.get_by_text("This link was used before").wait_for()
        page.locator("#token").fill("dgent_wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("the token is wrong").wait_for()
        assert watched.problems == []
        page.close()


def test_constellations_and_tokens(browser: Browser, tmp_path: Path) -> None:
    home = str(tmp_path)
    command("-C", "garden", "--agent", "ann", "block", "create", "persona", "I grow beans.", home=home)
    command("-C", "kitchen", "--agent", "bob", "block", "create", "persona", "I cook beans.", home=home)
    with studio(home=home) as link:
        page = browser.new_page()
        watched = Watched(page, link)
        for name, text in (("garden", "I grow beans."), ("kitchen", "I cook beans.")):
            page.get_by_label("Constellation").select_option(name)
            page.wait_for_url(f"**/?c={name}**")
            page.goto(f"{watched.base}/?c={name}#/memory")
            page.get_by_text(text).first.wait_for()
        assert watched.problems == []
        page.close()
    made = command(
        "-C", "garden", "token", "create", "--agent", "ann", "--trust", "friend", "--json", home=home
    )
    with start("-C", "garden", "serve", "--port", "0", home=home) as address:
        page = browser.new_page()
        watched = Watched(page, f"{address}/")  # there is nothing to see without a token
        page.locator("#token").fill(json.loads(made)["data"]["token"])
        page.get_by_role("button", name="Log in").click()
        page.locator("h1", has_text="Overview").wait_for()
        watched.open("memory/bob")  # a token sees its own agent only
        page.get_by_text("What ann knows.").wait_for()
        page.get_by_text("I grow beans.").first.wait_for()
        assert watched.problems == []
        page.close()
