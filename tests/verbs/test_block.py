"""Whose library a verb of blocks works on, and who is asked."""

from __future__ import annotations

from typing import Any

import pytest

import dgent
from dgent.blocks import Library, errors
from dgent.verbs import registry
from dgent.verbs.caller import Caller
from dgent.verbs.context import Context
from dgent.verbs.path import invoke


async def call(u: dgent.Universe, id: str, caller: Caller, consent: Any = None, **given: Any) -> Any:
    """Call a verb as somebody, who may be asked."""

    async def same() -> dgent.Universe:
        return u

    return await registry.call(registry.find(id), Context(same, caller=caller, consent=consent), given)


async def test_only_who_speaks_for_the_partner_acts_as_whoever_the_store_was_opened_for() -> None:
    async with dgent.open("memory:", author="ann") as u:
        await Library(u, agent="ann").create("notes", text="mine")
        shown = await invoke(u, "self.block.get", label="notes")
        assert (shown.owner, shown.text) == ("ann", "mine")
        for caller in (Caller("socket", None, "friend"), Caller("socket", "eve", "friend")):
            with pytest.raises(errors.BlockNotFound):
                await call(u, "block.get", caller, label="notes")
            with pytest.raises(errors.BlockNotFound):
                await call(u, "block.append", caller, label="ann/notes", text="x")
            made = await call(u, "block.create", caller, label="notes")
            assert made.owner == (caller.agent or "socket")
        id = (await call(u, "block.info", Caller("here", "ann", "partner"), label="notes")).card.id
        with pytest.raises(errors.BlockNotFound):
            await call(u, "block.get", Caller("socket", "eve", "friend"), label=id)


async def test_the_caller_is_no_more_than_its_trust() -> None:
    async with dgent.open("memory:", author="ann") as u:
        await Library(u, agent="ann").create("notes", text="mine")
        for trust, verb, given in (
            ("untrusted", "block.get", {}),
            ("untrusted", "block.search", {"query": "mine"}),
            ("conversant", "block.write", {"text": "x"}),
            ("conversant", "block.describe", {"limit": 9}),
            ("friend", "block.redact", {"first": 1}),
        ):
            about = {} if verb == "block.search" else {"label": "notes"}
            with pytest.raises(dgent.Denied):
                await call(u, verb, Caller("x", "ann", trust), **about, **given)
        assert (await invoke(u, "self.block.history", label="notes")).total == 1


async def test_whoever_is_at_the_door_is_asked() -> None:
    async with dgent.open("memory:", author="ann") as u:
        await Library(u, agent="ann").create("rules", text="Be kind.", permission="human")
        asked: list[str] = []

        def agree(request: Any) -> bool:
            asked.append(f"{request.agent} {request.what} {request.label}")
            return True

        caller = Caller("here", "ann", "partner")
        with pytest.raises(errors.ConsentRefused):
            await call(u, "block.append", caller, label="rules", text=" Be brief.")
        made = await call(u, "block.append", caller, agree, label="rules", text=" Be brief.")
        assert made.version.version == 2 and asked == ["ann append rules"]
