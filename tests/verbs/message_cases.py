"""Cases of the verbs of messages, and what they start from."""

from __future__ import annotations

from dgent.messages import Entry, Inbox, Messages
from dgent.universe.universe import Universe
from tests.verbs.case import Case

MESSAGE_CASES: dict[str, list[Case]] = {
    "message.list": [
        Case({"limit": 2, "role": "user"}, ["-n", "2", "-r", "user"]),
        Case({"batch": "nothing"}, ["--batch", "nothing"], "not_found"),
    ],
    "message.get": [Case({"id": "last"}, ["last"]), Case({"id": "nothing"}, ["nothing"], "not_found")],
    "message.add": [
        Case(
            {"text": "well done", "trust": "conversant", "origin": "chat", "key": "k"},
            ["well", "done", "--trust", "conversant", "--origin", "chat", "--key", "k"],
        ),
    ],
    "message.search": [Case({"query": "the kettle"}, ["the", "kettle"])],
    "message.edit": [Case({"id": "last", "text": "so far"}, ["last", "so", "far"])],
    "message.delete": [
        Case({"id": "last"}, ["last"]),
        Case({"id": "last", "batch": True, "forget": True}, ["last", "--batch", "--forget", "--yes"]),
    ],
    "message.redact": [Case({"text": "kettle"}, ["kettle", "--yes"])],
    "message.batches": [Case({"open": True}, ["--open"])],
    "message.interrupt": [Case({"id": "last", "reason": "enough"}, ["last", "-m", "enough"])],
    "message.compress": [
        Case({"strategy": "recursive_summary", "keep": 1}, ["-s", "recursive_summary", "--keep", "1"]),
    ],
    "message.summaries": [Case({}, [])],
    "message.restore": [Case({}, []), Case({"id": "nothing"}, ["nothing"], "conflict")],
    "message.export": [Case({"to": "{new}"}, ["--to", "{new}"])],
    "message.import": [
        Case({"path": "{new}"}, ["{new}"], "not_found"),
        Case({"path": "{exported}"}, ["{exported}"], "input"),
    ],
    "message.send": [
        Case({"to": "scribe", "text": "hello there"}, ["scribe", "hello", "there"]),
        Case({"to": "scribe", "text": "x", "priority": 10}, ["scribe", "x", "-p", "10"], "input"),
    ],
    "message.queue": [Case({"state": "waiting"}, ["--state", "waiting"])],
    "message.take": [Case({"lease": 60.0}, ["--lease", "60"])],
    "message.done": [Case({"id": "nothing"}, ["nothing"], "not_found")],
    "message.release": [Case({"id": "nothing"}, ["nothing"], "not_found")],
}


async def fill_messages(universe: Universe) -> None:
    """Messages for whoever calls: an archive, ended batches, an open one, and one in the queue."""
    for agent in ("eve", "system"):
        messages = Messages(universe, agent)
        for text in ("the kettle is on", "it boils", "tea is ready"):
            await messages.add_all([Entry("user", text, origin="chat"), Entry("assistant", f"yes, {text}")])
        await messages.compress({"strategy": "truncate", "keep": 3})
        await messages.begin(entries=[Entry("user", "and now?")])
        await Inbox(universe, "ann").send(agent, "anybody there?", type="user_request")
