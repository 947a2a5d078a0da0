"""Agents over HTTP: streamed answers, trust by token, keys, consent, limits, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.config.agent import AgentSettings
from dgent.doors.http.app import Server
from dgent.doors.http.house import House
from dgent.doors.http.limit import Limits
from dgent.doors.http.turn import AgentTurns, EventLog
from dgent.errors import NotFound
from dgent.messages import Messages
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Done, Text
from dgent.runtime.limits import Limits as TurnLimits
from dgent.runtime.model.script import ScriptedModel
from dgent.runtime.opener import read_rules
from dgent.universe.gate import Principal, Trust
from dgent.universe.token import create_token
from tests.http.client import Answer, Client

MESSAGES, EVENTS = "/v1/agents/scout/messages", "/v1/agents/scout/events"
CONSENTS = "/v1/agents/scout/consents"


class Desk:
    """Opens agents with scripted models."""

    def __init__(self, steps: list[Any], rules: tuple[dict[str, Any], ...] = ()) -> None:
        self.model, self._rules = ScriptedModel(steps), AgentSettings(rules=rules)

    def find_settings(self, name: str) -> AgentSettings:
        return self._rules

    async def check(self, universe: dgent.Universe, name: str) -> None:
        if name != "scout":
            raise NotFound(f"there is no agent {name!r}")

    def open(self, universe: dgent.Universe, name: str, most: int) -> AgentTurns:
        limits = TurnLimits(consent_s=60)
        made = AgentRuntime(
            universe,
            name,
            model=self.model,
            rules=read_rules(self._rules),
            limits=limits,
            own=("everyday", "data"),
        )
        return AgentTurns(made, most)


class Site:
    """A server with one agent, and clients of any trust."""

    def __init__(self, universe: dgent.Universe, desk: Desk, limits: Limits | None = None) -> None:
        self.universe, self.desk = universe, desk

        async def open(_stack: object) -> dgent.Universe:
            return universe

        self.house = House({"main": open}, desk)
        self.server = Server(self.house, hosts=("127.0.0.1",), limits=limits)

    async def client(self, trust: Trust = "partner", name: str = "ann") -> Client:
        _, token = await create_token(self.universe, Principal(name, trust))
        return Client(self.server, token)


@pytest.fixture
async def universe() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as u:
        await Library(u, "scout").agents.create("scout")
        yield u


def events_of(answer: Answer | bytes) -> list[dict[str, Any]]:
    body = answer if isinstance(answer, bytes) else answer.body
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append(
                {**json.loads(fields["data"]), "id": int(fields.get("id", 0)), "event": fields["event"]}
            )
    return found


def text_of(answer: Answer) -> str:
    return "".join(each["text"] for each in events_of(answer) if each["type"] == "text")


async def test_an_answer_is_a_stream_of_numbered_events(universe: dgent.Universe) -> None:
    note = {"name": "remember", "arguments": {"data": "north end"}}
    site = Site(universe, Desk([{"text": "Keeping it.", "calls": [note]}, "Kept, and that is all of it."]))
    client = await site.client()
    answer = await client.post(MESSAGES, {"text": "the lighthouse is at the north end"})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events_of(answer)
    kinds = [each["event"] for each in found]
    assert kinds == [each["type"] for each in found]
    assert kinds.index("text") < kinds.index("tool_started") < kinds.index("tool_finished")
    assert kinds[-1] == "done"
    numbers = [each["id"] for each in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert text_of(answer) == "Keeping it.Kept, and that is all of it."
    turn = answer.headers["x-dgent-turn"]
    rest = await client.get(f"{EVENTS}?turn={turn}", Last_Event_ID=str(numbers[3]))
    assert [each["id"] for each in events_of(rest)] == numbers[4:]
    messages = (await Messages(universe, "scout").page(10)).items
    assert [each.trust for each in messages] == ["partner"] * len(messages)
    assert messages[-1].by == "ann"


async def test_what_strangers_write_has_the_trust_of_the_bridge(universe: dgent.Universe) -> None:
    """A conversant's token: "delete the notes" does not, whatever the model does with it."""
    note = await universe.put(dgent.Datum("note-1", data={"text": "keep me"}))
    calls = [
        {"name": "data", "arguments": {"operation": "delete", "id": "note-1"}},
        {"name": "data", "arguments": {"operation": "put", "id": "note-1", "data": {"text": "gone"}}},
    ]
    site = Site(universe, Desk([{"calls": calls}, "I could not."]))
    bridge = await site.client("conversant", "bridge")
    answer = await bridge.post(MESSAGES, {"text": "delete the notes", "origin": "chat #general"})
    assert text_of(answer) == "I could not."
    kept = await universe.get("note-1")
    assert kept is not None and kept.data == {"text": "keep me"} and kept.rev == note.rev
    asked = (await Messages(universe, "scout").page(10)).items[-1]
    assert (asked.trust, asked.origin, asked.by) == ("conversant", "chat #general", "bridge")
    shown = {each["type"]: each for each in events_of(answer)}
    assert "usage_report" not in shown and "usage" not in shown["done"]
    assert "arguments" not in shown["tool_started"] and "text" not in shown["tool_finished"]


async def test_who_may_do_what(universe: dgent.Universe) -> None:
    site = Site(universe, Desk(["Hello.", "Hello again."]))
    partner, friend = await site.client(), await site.client("friend", "fred")
    other = await site.client("conversant", "carl")
    answer = await friend.post(MESSAGES, {"text": "hi"})
    turn = answer.headers["x-dgent-turn"]
    assert (await friend.get(f"{EVENTS}?turn={turn}")).status == 200
    assert (await other.get(f"{EVENTS}?turn={turn}")).status == 404
    assert (await partner.get(f"{EVENTS}?turn={turn}")).status == 200
    for path, body in (("interrupt", {}), ("resume", {})):
        assert (await friend.post(f"/v1/agents/scout/{path}", body)).status == 403
    assert (await friend.get(EVENTS)).status == 403
    assert (await friend.get(CONSENTS)).status == 403
    assert (await friend.get("/v1/agents/scout/context")).status == 403
    assert (await partner.get("/v1/agents/scout/context")).data["agent"] == "scout"
    assert (await partner.post("/v1/agents/nobody/messages", {"text": "hi"})).status == 404
    assert (await Client(site.server).post(MESSAGES, {"text": "hi"})).status == 401
    assert (await partner.get(MESSAGES)).status == 405


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b'{"text": ""}', b'{"text": 5}', b'{"text": "x", "trust": "partner"}']
)
async def test_wrong_bodies_are_refused(universe: dgent.Universe, body: bytes) -> None:
    site = Site(universe, Desk([]))
    client = await site.client()
    assert (await client.send("POST", MESSAGES, body)).status == 400
    assert (await client.post(MESSAGES, {"text": "x" * 200_001})).status == 400
    assert (await client.send("POST", MESSAGES, b"x" * (10 * 2**20 + 1))).status == 413


async def test_the_same_key_is_answered_once(universe: dgent.Universe) -> None:
    desk = Desk([{"text": "One and only.", "delay_s": 0.05}])
    site = Site(universe, desk)
    client, other = await site.client(), await site.client(name="bob")
    sent = [client.post(MESSAGES, {"text": "hi"}, Idempotency_Key="k1") for _ in range(5)]
    answers = await asyncio.gather(*sent)
    assert {text_of(each) for each in answers} == {"One and only."}
    assert len({each.headers["x-dgent-turn"] for each in answers}) == 1
    # A server that was started again knows the key from the store.
    again = Site(universe, desk)
    repeated = await Client(again.server, client.token).post(MESSAGES, {"text": "hi"}, Idempotency_Key="k1")
    assert events_of(repeated)[-1]["text"] == "One and only."
    assert len(desk.model.calls) == 1
    failed = await other.post(MESSAGES, {"text": "hi"}, Idempotency_Key="k1")
    assert events_of(failed)[-1]["type"] == "failed", "another's key: the script has no second answer"
    assert (await client.post(MESSAGES, {"text": "hi"}, Idempotency_Key="k" * 300)).status == 400


async def test_a_turn_goes_on_when_its_client_leaves(universe: dgent.Universe) -> None:
    site = Site(universe, Desk([{"text": "a long answer in pieces", "pause_s": 0.02, "piece": 2}]))
    client = await site.client()
    sending = asyncio.ensure_future(client.post(MESSAGES, {"text": "hi"}))
    await client.hear(b"a ")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    turns = await (await site.house.store("main")).agent("scout", 8)
    (turn,) = turns._turns.values()
    answer = await client.get(f"{EVENTS}?turn={turn.id}")
    assert text_of(answer) == "a long answer in pieces"
    assert events_of(answer)[-1]["type"] == "done"


async def test_interrupt_and_resume(universe: dgent.Universe) -> None:
    slow = {"text": "one two three", "pause_s": 300, "piece": 4}
    site = Site(universe, Desk([slow, "And on it goes."]))
    client = await site.client()
    sending = asyncio.ensure_future(client.post(MESSAGES, {"text": "count"}))
    await client.hear(b"one ")
    stopped = (await client.post("/v1/agents/scout/interrupt", {})).data["interrupted"]
    answer = await sending
    assert stopped == [answer.headers["x-dgent-turn"]]
    assert events_of(answer)[-1]["finish"] == "interrupted"
    resumed = await client.post("/v1/agents/scout/resume")
    assert text_of(resumed) == "And on it goes."


async def test_consent_is_given_over_http(universe: dgent.Universe) -> None:
    note = {"name": "remember", "arguments": {"data": "with consent"}}
    rules = ({"rule": "consent", "tools": ["remember"]},)
    site = Site(universe, Desk([{"calls": [note]}, "Kept."], rules))
    partner, scout = await site.client(), await site.client(name="scout")
    sending = asyncio.ensure_future(partner.post(MESSAGES, {"text": "keep it"}))
    waiting: list[Any] = []
    while not waiting:
        waiting = (await partner.get(CONSENTS)).data["items"]
        await asyncio.sleep(0.01)
    (asked,) = waiting
    assert (asked["agent"], asked["tool"]) == ("scout", "remember")
    itself = await scout.post(f"{CONSENTS}/{asked['id']}", {"answer": "once"})
    assert itself.status == 403, "an agent does not consent to its own call"
    assert (await partner.post(f"/v1/agents/critic/consents/{asked['id']}", {"answer": "once"})).status == 404
    assert (await partner.post(f"{CONSENTS}/{asked['id']}", {"answer": "once"})).data["state"] == "granted"
    assert text_of(await sending) == "Kept."
    assert len(await universe.query(raw=True, where={"text": "with consent"})) == 1


async def test_too_many_turns_at_once(universe: dgent.Universe) -> None:
    """Fifty at once: as many as there are places run, others wait, and a partner finds a place."""
    slow = {"text": "an answer", "delay_s": 0.2}
    site = Site(universe, Desk([slow] * 60), Limits(turns=8))
    bridge, partner = await site.client("conversant", "bridge"), await site.client()
    sent = [asyncio.ensure_future(bridge.post(MESSAGES, {"text": str(n)})) for n in range(50)]
    await asyncio.sleep(0.05)
    mine = await partner.post(MESSAGES, {"text": "and me"})
    answers = await asyncio.gather(*sent)
    assert text_of(mine) == "an answer"
    refused = [each for each in answers if each.status == 429]
    assert len(refused) >= 40 and all("retry-after" in each.headers for each in refused)
    assert {text_of(each) for each in answers if each.status == 200} == {"an answer"}
    assert len(await Messages(universe, "scout").list_batches(limit=100)) == 51 - len(refused)


async def test_a_reader_far_behind_is_told_what_it_missed() -> None:
    log = EventLog()
    first = log.next
    for number in range(10_000):
        log.add("turn", Text(text=str(number)))
    kept = log.next - log.first
    assert kept < 5_000
    reader = log.follow(first - 1, None, whole=True)
    found = events_of(b"".join([await anext(reader) for _ in range(3)]))
    assert (found[0]["type"], found[0]["count"]) == ("missed", 10_000 - kept)
    assert found[1]["text"] == str(10_000 - kept) and found[1]["id"] == log.first
    for strange in (5, log.next + 100):
        other = log.follow(strange, None, whole=True)
        assert events_of(await anext(other)) == [{"type": "missed", "count": 0, "id": 0, "event": "missed"}]
        await other.aclose()
    # One that stands still while events come, and reads on later.
    for number in range(10_000):
        log.add("turn", Text(text=str(number)))
    late = events_of(b"".join([await anext(reader) for _ in range(2)]))
    assert late[0]["type"] == "missed" and late[0]["count"] > 5_000
    await reader.aclose()


async def test_huge_events_are_bounded_together() -> None:
    log = EventLog()
    for _ in range(100):
        log.add("turn", Done(text="x" * 1_000_000))
    assert log.next - log.first <= 9


async def test_a_stopping_server_interrupts_durably(universe: dgent.Universe) -> None:
    site = Site(universe, Desk([{"text": "one two three", "pause_s": 300, "piece": 4}]))
    client = await site.client()
    sending = asyncio.ensure_future(client.post(MESSAGES, {"text": "count"}))
    await client.hear(b"one ")
    await site.server.stop()
    assert events_of(await sending)[-1]["finish"] == "interrupted"
    (batch,) = await Messages(universe, "scout").list_batches()
    assert batch.state == "interrupted"
    assert (await client.post(MESSAGES, {"text": "more"})).status == 503


async def test_the_description_has_the_addresses(universe: dgent.Universe) -> None:
    site = Site(universe, Desk([]))
    found = (await (await site.client()).get("/v1/openapi.json")).json["paths"]
    for path in (MESSAGES, EVENTS, "/v1/agents/scout/interrupt", "/v1/agents/scout/resume"):
        assert path.replace("scout", "{name}") in found
    assert (
        "text"
        in found["/v1/agents/{name}/messages"]["post"]["requestBody"]["content"]["application/json"][
            "schema"
        ]["required"]
    )
