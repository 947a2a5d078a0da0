"""Strange contents, damaged exports and cancelled calls: nothing breaks, and nothing is half there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dgent.errors import Conflict, DgentError, InputError, NotFound
from dgent.messages import Entry, Inbox, Messages, Part

TEXTS = ["", "\x00", "a\r\nb\u2028c", "‮abc", "{}" * 1000, "😀" * 50, "blob:" + "0" * 64, "</message>"]


async def test_contents_come_back_as_they_were(messages: Messages) -> None:
    given: list[tuple[Part, ...]] = [(Part("text", text),) for text in TEXTS]
    given += [
        tuple(Part("text", text) for text in TEXTS),
        (Part("thinking", "only", signature="\n\n"),),
        (Part("image", blob="blob:" + "ab" * 32, media_type="image/png"), Part("text", "look\n\n")),
        (Part("tool_call", call="c", name="n", arguments={"a": [1, None, {"b": "\n\n"}]}), Part("text", "")),
    ]
    batch = await messages.begin()
    await batch.add_all([Entry("assistant", parts) for parts in given])
    await batch.add_result("c", "\n\n" * 3, error=True)
    again = [each.parts for each in await batch.messages()]
    assert again == [*given, (Part("tool_result", "\n\n" * 3, call="c", error=True),)]


@pytest.mark.parametrize(
    "content",
    [
        *(None, 3, b"x", [], [3], ["\ud800"], "\ud800", [{"type": "no"}], [{"type": "text", "text": 3}]),
        *([Part("tool_call")], [Part("tool_call", call="c")], [Part("image", blob="../etc/passwd")]),
        [Part("tool_result", call="c"), Part("tool_result", call="d")],
        [Part("tool_call", call="c", name="n", arguments={"x": float("nan")})],
        [Part("text", "x")] * 1001,
    ],
)
async def test_what_is_no_content_is_refused(messages: Messages, content: object) -> None:
    with pytest.raises(InputError):
        await messages.add("user", content)  # type: ignore[arg-type]
    assert await messages.count() == 0 and await messages.list_batches() == []


@pytest.mark.parametrize("field", ["origin", "by", "session", "trust", "role", "usage", "type"])
async def test_what_is_no_field_is_refused(messages: Messages, field: str) -> None:
    for wrong in (3, ["x"], "\ud800", float("nan")):
        given = {"role": "user", "content": "x", field: {"n": wrong} if field == "usage" else wrong}
        if field == "usage" and wrong in (3, ["x"]):
            continue
        with pytest.raises(InputError):
            await messages.add(**given)  # type: ignore[arg-type]
    assert await messages.count() == 0


async def test_names_of_agents_do_not_mix(messages: Messages) -> None:
    u = messages.universe
    names = ["a", "a/b", "a.b", "A", "a\n", "ä", "x" * 250, "a%", "*"]
    for name in names:
        await Messages(u, name).add("user", f"of {name}")
    for name in names:
        assert [each.text for each in (await Messages(u, name).page()).items] == [f"of {name}"]
    with pytest.raises(InputError):
        Messages(u, "")


async def test_a_damaged_export_imports_nothing(messages: Messages) -> None:
    await messages.add_all([Entry("user", "a"), Entry("assistant", "b")])
    lines = [line async for line in messages.export()]
    u = messages.universe
    other = Messages(u, "other")
    with pytest.raises(InputError, match="messages of 'scout'"):
        await other.load(lines)
    await messages.forget(lines[1].split('"id":"')[1].split('"')[0])
    damaged = [
        *(lines[:-1], lines[1:], lines[:2] + lines[3:], [*lines, lines[1]], ["{", *lines]),
        [line.replace("partner", "god") for line in lines],
        [line.replace('"role":"user"', '"role":"root"') for line in lines],
        [line.replace('"kind":"message"', '"kind":"token"') for line in lines],
        [line.replace('"agent":"scout"', '"agent":"other"') if n else line for n, line in enumerate(lines)],
        [line.replace("/00000002", "/00000003") for line in lines],
        [],
    ]
    for each in damaged:
        with pytest.raises(InputError):
            await messages.load(each)
    assert await messages.count() == 0 and await messages.list_batches() == []
    assert (await messages.load(lines)).added == 3 and (await messages.load(lines)).known == 3


async def test_a_cancelled_add_is_there_whole_or_not_at_all(messages: Messages) -> None:
    batch = await messages.begin()
    for number in range(20):
        task = asyncio.ensure_future(
            batch.add_all([Entry("user", f"{number}a"), Entry("user", f"{number}b")])
        )
        for _ in range(number % 7):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await batch.add("user", "last")
    texts = [each.text for each in await batch.messages()]
    assert texts[-1] == "last" and len(texts) % 2 == 1
    assert all(a[:-1] == b[:-1] for a, b in zip(texts[:-1:2], texts[1:-1:2], strict=True))


async def test_a_redaction_that_was_cut_is_finished(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = await messages.add("user", "my password is hunter2", origin="hunter2")
    await messages.edit(added.id, "forget it")  # the old version has it still
    room = type(messages._log.universe)
    real = room.forget

    async def fail(*given: object, **named: object) -> None:
        raise OSError("the power went")

    monkeypatch.setattr(room, "forget", fail)
    with pytest.raises(OSError, match="power"):
        await messages.redact("hunter2")
    monkeypatch.setattr(room, "forget", real)
    # A change would be lost with what is about to be erased.
    with pytest.raises(Conflict, match="is being redacted"):
        await messages.edit(added.id, "late")
    with pytest.raises(Conflict, match="is being redacted"):
        await messages.delete(added.id)
    assert await messages.redact("hunter3") == 0
    (found,) = (await messages.page()).items
    assert (found.id, found.text, found.at) == (added.id, "forget it", added.at)
    assert found.origin == "[redacted]"
    assert all("hunter2" not in str(each.datum) for each in await messages.universe.history(added.id))
    with pytest.raises(DgentError):
        await messages.redact(" ")
    await Inbox(messages.universe, "ann").send("scout", "hunter2 again", origin="hunter2")
    await (await messages.begin(session="hunter2")).interrupt("hunter2")
    assert await messages.redact("hunter2", "x") == 2
    assert (await Inbox(messages.universe, "scout").list())[0].text == "x again"
    assert (await messages.list_batches(limit=1))[0].reason == "x"
    # Words of the record itself are nobody's.
    parts = [Part("text", "a text"), Part("tool_call", call="text", name="tool_call", arguments={"text": 1})]
    batch = await messages.begin()
    await batch.add("assistant", parts)
    assert [await messages.redact(word) for word in ("scout", "message", "text")] == [0, 0, 1]
    (kept,) = await batch.messages()
    assert kept.parts[0] == Part("text", "a [redacted]") and kept.parts[1].arguments == {"[redacted]": 1}
    assert kept.parts[1].call == "text"


async def test_an_edit_at_the_time_of_a_redaction_is_not_lost(messages: Messages) -> None:
    for number in range(8):
        added = await messages.add("user", f"hunter2 {number}")

        async def edit(id: str, pauses: int) -> bool:
            for _ in range(pauses):
                await asyncio.sleep(0)
            try:
                await messages.edit(id, "mine")
            except (Conflict, NotFound):
                return False
            return True

        edited, _ = await asyncio.gather(edit(added.id, 2 * number), messages.redact("hunter2"))
        assert (await messages.get(added.id)).text == ("mine" if edited else f"[redacted] {number}")
        assert all("hunter2" not in str(each.datum) for each in await messages.universe.history(added.id))


async def test_what_was_deleted_is_redacted_and_forgotten_too(everywhere: Messages) -> None:
    messages, u = everywhere, everywhere.universe
    one = await messages.add("user", "the password is hunter2")
    await messages.delete(one.id)
    two = await messages.add("user", "hunter2 again")
    await messages.delete(two.batch)
    assert await messages.redact("hunter2") == 2
    assert await u.history(one.id) == [] and await u.history(two.id) == []
    batch = await messages.begin(entries=[Entry("user", "first"), Entry("user", "second")])
    first, second = await batch.messages()
    other = await messages.add("user", "other")
    await messages.delete(first.id)
    assert await messages.forget(first.id) == 1
    assert await u.history(first.id) == []
    await messages.delete(second.id)
    assert await messages.forget(batch.id) == 1
    assert await u.history(second.id) == [] and await u.history(batch.id) == []
    await messages.delete(other.batch)
    assert await messages.forget(other.batch) == 1
    assert await u.history(other.id) == []
    with pytest.raises(NotFound):
        await messages.forget(other.batch)
    last = await messages.add("user", "hunter3")
    await messages.edit(last.id, "none")
    await messages.delete(last.batch)
    await u.compact(0)
    await messages.redact("hunter3")
    assert all(each.datum is None for each in await u.history(last.id))


async def test_nobody_sends_what_cannot_be_delivered(messages: Messages) -> None:
    inbox = Inbox(messages.universe, "scout")
    wrong: list[dict[str, Any]] = [
        {"origin": 5},
        {"priority": 3.7},
        {"priority": "9"},
        {"attempts": 2.5},
        {"cooldown_s": float("nan")},
    ]
    for each in wrong:
        with pytest.raises(InputError):
            await inbox.send("scout", "x", **each)
    await inbox.send("scout", "x")
    taken = await inbox.take()
    assert taken is not None
    for delay in (float("inf"), float("nan"), 1e300):
        with pytest.raises(InputError, match="delay_s"):
            await taken.give_back(delay_s=delay)
        with pytest.raises(InputError, match="delay_s"):
            await inbox.release(taken.id, delay_s=delay)
    with pytest.raises(InputError, match="not a number"):
        await messages.compress({"strategy": "time_decay", "hours": float("nan")})
