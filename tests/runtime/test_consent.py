"""Consent: asked once, answered first, expiring; and no agent gives it to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dgent
from dgent.errors import Conflict, Denied, InputError, NotFound
from dgent.runtime.errors import ConsentDenied, ConsentExpired
from dgent.runtime.tool.consent import Consents
from dgent.universe.gate import Principal


class Hands:
    """A wall clock that only the test moves on."""

    def __init__(self) -> None:
        self.at = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr("dgent.clock.now", made.now)
    return made


@pytest.fixture
async def consents() -> AsyncIterator[Consents]:
    async with dgent.open("memory:", author="scout") as u:
        yield Consents(u)


async def test_a_request_waits_in_the_queue_until_the_first_answer(consents: Consents) -> None:
    waiting = asyncio.create_task(consents.require("scout", "run", key="b/1", reason="to test", details=[1]))
    while not (found := await consents.list_open()):
        await asyncio.sleep(0)
    (asked,) = found
    assert asked.describe() == "scout (partner) wants to call run: to test" and asked.details == [1]
    answered = await consents.answer(asked.id, "once", by="ada")
    assert await waiting == answered and answered.granted
    assert await consents.list_open() == [] and await consents.list_grants() == []
    # Once is for this call: asked again after a crash it has its answer, and another call does not.
    assert await consents.require("scout", "run", key="b/1") == answered
    with pytest.raises(ConsentExpired, match="nobody answered"):
        await consents.require("scout", "run", key="b/2", wait_s=0.01)
    assert await consents.list_open() == []


async def test_of_two_answers_the_first_counts(consents: Consents) -> None:
    asked = await consents.ask("scout", "run", key="b/1")
    done = await asyncio.gather(
        consents.answer(asked.id, "once", by="ada"),
        consents.answer(asked.id, "deny", by="bob"),
        return_exceptions=True,
    )
    (won,) = [each for each in done if not isinstance(each, BaseException)]
    (lost,) = [each for each in done if isinstance(each, BaseException)]
    assert isinstance(lost, Conflict) and "answered already" in str(lost)
    assert await consents.answer(asked.id, won.answer or "deny", by=won.by) == won
    if not won.granted:
        with pytest.raises(ConsentDenied):
            await consents.wait(asked.id)


async def test_a_refusal_names_who_refused(consents: Consents) -> None:
    asked = await consents.ask("scout", "run", key="b/1")
    await consents.answer(asked.id, "deny", by="ada")
    with pytest.raises(ConsentDenied, match="ada did not allow run"):
        await consents.require("scout", "run", key="b/1")


async def test_an_answer_after_the_time_out_is_refused(consents: Consents, hands: Hands) -> None:
    asked = await consents.ask("scout", "run", key="b/1", wait_s=5)
    hands.move(5)
    assert await consents.list_open() == []
    with pytest.raises(ConsentExpired, match="timed out at"):
        await consents.answer(asked.id, "once")
    with pytest.raises(ConsentExpired, match="nobody answered"):
        await consents.wait(asked.id)
    with pytest.raises(ConsentExpired, match="timed out at"):
        await consents.answer(asked.id, "once")


async def test_a_grant_covers_its_tool_or_its_scope_until_it_ends(consents: Consents, hands: Hands) -> None:
    first = await consents.ask("scout", "write", key="b/1", scope="src/", trust="friend")
    await consents.answer(first.id, "duration", for_s=60)
    grant = await consents.require("scout", "write", key="b/2", trust="friend")
    assert [grant] == await consents.list_grants("scout") and await consents.list_grants("other") == []
    assert await consents.find_grant("scout", "write", operation="all") is None
    assert await consents.find_grant("other", "write") is None
    assert await consents.find_grant("scout", "edit", scope="src/") is None
    second = await consents.ask("scout", "edit", key="b/3", scope="src/")
    await consents.answer(second.id, "scope", for_s=30)
    found = await consents.find_grant("scout", "patch", scope="src/")
    assert found is not None and found.scope == "src/" and found.tool == ""
    assert await consents.find_grant("scout", "patch", scope="docs/") is None
    hands.move(30)
    assert await consents.find_grant("scout", "patch", scope="src/") is None
    assert await consents.prune() == 1
    assert isinstance(grant.id, str)
    await consents.revoke(grant.id)
    assert await consents.find_grant("scout", "write") is None
    with pytest.raises(NotFound):
        await consents.revoke(grant.id)


async def test_a_grant_does_not_cover_a_call_that_is_trusted_less(consents: Consents) -> None:
    asked = await consents.ask("scout", "run", key="b/1", trust="partner")
    await consents.answer(asked.id, "duration")
    assert await consents.find_grant("scout", "run", trust="partner") is not None
    assert await consents.find_grant("scout", "run", trust="untrusted") is None


async def test_wrong_answers_and_keys_are_refused(consents: Consents) -> None:
    asked = await consents.ask("scout", "run", key="b/1")
    assert await consents.ask("scout", "run", key="b/1") == asked
    with pytest.raises(Conflict, match="was used to ask for run"):
        await consents.ask("scout", "write", key="b/1")
    with pytest.raises(InputError, match="not a valid answer"):
        await consents.answer(asked.id, "yes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no scope"):
        await consents.answer(asked.id, "scope")
    with pytest.raises(InputError, match="has no duration"):
        await consents.answer(asked.id, "once", for_s=3)
    with pytest.raises(InputError, match="expected seconds"):
        await consents.answer(asked.id, "duration", for_s=float("inf"))
    with pytest.raises(NotFound):
        await consents.answer("nothing", "once")
    assert (await consents.list_open()) == [asked]


async def test_an_agent_cannot_consent_to_what_it_asks_for(consents: Consents) -> None:
    asked = await consents.ask("scout", "run", key="b/1")
    handle = consents.universe.acting(Principal("scout", "friend"))
    with pytest.raises(Denied, match="may not ask for or give consent"):
        Consents(handle)
    record = await consents.universe.get(f"dgent.consent/{asked.id}", raw=True)
    with pytest.raises(Denied):
        await handle.put(record.replace(data={**record.data, "state": "granted"}))
    assert await handle.get(record.id, raw=True) is None


async def test_another_process_answers_and_both_see_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as here, dgent.open(url) as there:
        waiting = asyncio.create_task(Consents(here).require("scout", "run", key="b/1", wait_s=20))
        while not (found := await Consents(there).list_open()):
            await asyncio.sleep(0.01)
        await Consents(there).answer(found[0].id, "duration", by="ada")
        assert (await asyncio.wait_for(waiting, 20)).by == "ada"
        assert (await Consents(here).list_grants())[0].by == "ada"
