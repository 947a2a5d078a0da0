"""Two copies of a store that went on apart: merged, both have all messages, each copy's own in order."""

from __future__ import annotations

from pathlib import Path

import dgent
from dgent.messages import Messages
from dgent.universe.room import load_room
from tests.jsonl.test_merge import _copy, _merge


async def test_what_two_copies_said_is_put_together(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    async with dgent.open(f"jsonl:{ours}") as u:
        await Messages(u, "scout").add("user", "before")
    _copy(ours, tmp_path / "base")
    _copy(ours, theirs)
    for folder in (ours, theirs):
        async with dgent.open(f"jsonl:{folder}") as u:
            for number in range(3):
                await Messages(u, "scout").add("user", f"{folder.name} {number}")
    _merge(tmp_path / "base", ours, theirs)
    async with dgent.open(f"jsonl:{ours}") as u:
        messages = Messages(u, "scout")
        texts = [each.text for each in (await messages.history()).messages]
        assert texts[0] == "before" and len(texts) == 7
        for name in ("ours", "theirs"):
            assert [text for text in texts if text.startswith(name)] == [f"{name} {n}" for n in range(3)]
        await messages.add("user", "after")
        assert (await messages.page(1)).items[0].text == "after"
        (found,) = await load_room("messages").inspect(u.for_room("messages"), deep=True)
        assert found.level == "ok"
