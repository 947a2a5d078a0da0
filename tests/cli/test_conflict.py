"""Conflicts of a merge at the command line: they fail a check until somebody has settled them."""

from __future__ import annotations

import asyncio

from tests.cli.terminal import Terminal
from tests.verbs.cases import fill_disputed


def test_a_conflict_fails_check_and_doctor_until_it_is_settled(dgent_: Terminal) -> None:
    folder = dgent_.home / "disputed"
    asyncio.run(fill_disputed(folder))
    store = ("--url", f"jsonl:{folder}")
    checked = dgent_("jsonl", "check", str(folder), "--json")
    assert checked.code == 1 and "dgent jsonl settle a" in checked.data["conflicts"][0]["hint"]
    assert checked.data["conflicts"][0]["fields"] == ["n"]
    shown = dgent_("jsonl", "check", str(folder)).out
    assert "'a' was changed in two copies in n" in shown and shown.endswith("not healthy\n")
    examined = dgent_(*store, "doctor")
    assert examined.code == 1 and "dgent jsonl settle a" in examined.out
    assert dgent_(*store, "jsonl", "settle", "a").code == 0
    assert dgent_("jsonl", "check", str(folder)).code == 0
    assert dgent_(*store, "doctor").code == 0
    assert dgent_(*store, "history", "a", "--json").data["items"][0]["rev"] == 5
