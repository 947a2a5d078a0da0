"""No verb shows an agent what belongs to another one, whichever way it is asked and however it ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

import dgent
from dgent.blocks import Library
from dgent.errors import DgentError
from dgent.verbs import registry
from dgent.verbs.caller import ALLOWED, Caller, Trust
from dgent.verbs.context import Context
from dgent.verbs.index import NOUNS
from tests.soak import some
from tests.verbs.cases import CASES

SECRET = "zanzibar"
BELOW: list[Trust] = [trust for trust in ALLOWED if trust != "partner"]
_PLACES = {"id", "target", "prefix", "parent", "label", "a", "b", "name", "crumb", "trail", "stash"}
_SCHEMAS = ("block.block", "block.version", "block.page", "block.snapshot", "block.entry", "block.share")


async def plant(u: dgent.Universe) -> dict[str, str]:
    """A store in which ann keeps a secret in every way there is; ids that lead to it, by what they are."""
    ann, eve = Library(u, agent="ann"), Library(u, agent="eve")
    await eve.create("mine", text="what eve wrote")
    await eve.agents.create("bob")
    block = await ann.create(f"plan {SECRET}", text=f"the {SECRET} plan", description=f"on {SECRET}")
    for number in range(3):
        await block.append(f"\n{SECRET} {number}", message=f"more {SECRET}")
    await block.checkpoint(f"{SECRET} point")
    await ann.share(f"plan {SECRET}", with_agent="bob")
    await ann.log_event("looked", f"at {SECRET}", label=f"log {SECRET}")
    gone = await ann.create(f"gone {SECRET}", text=SECRET)
    await ann.delete(f"gone {SECRET}")
    entry = await ann.archive(f"{SECRET} in the archive", tags={SECRET})
    dropped = await ann.archive(f"{SECRET} once", tags={SECRET})
    await ann.unarchive(dropped.id)
    with pytest.raises(DgentError):
        await Library(u, agent="bob").get(f"gone {SECRET}", owner="ann")
    given = await ann.create("given", text="eve may read this")
    await ann.share("given", with_agent="eve", permission="read_only")
    await u.put(dgent.Datum("child", data={"n": 1}, parent_id=entry.id))
    await u.put(dgent.Datum("grandchild", data={"n": 1}, parent_id="child"))
    await u.associate("child", block.id, f"kind of {SECRET}"[:7])
    return {
        "block": block.id,
        "version": f"{block.id}/u/0000000002",
        "gone": gone.id,
        "entry": entry.id,
        "dropped": dropped.id,
        "given": given.id,
    }


@pytest.fixture
async def planted() -> AsyncIterator[tuple[dgent.Universe, dict[str, str]]]:
    async with dgent.open("memory:") as u:
        yield u, await plant(u)


def asks(verb: registry.Verb, hidden: dict[str, str], newest: int) -> Iterator[dict[str, Any]]:
    """The usual calls of a verb, and those with ids, schemas and commits of what is hidden."""
    usual = [case.args for case in CASES[verb.id]]
    if verb.streams:  # each of these is waited for
        yield from ({"from_seq": 0, "schema": schema} for schema in (*_SCHEMAS, None))
        yield {"from_seq": 0, "prefix": hidden["block"]}
        return
    yield from usual
    fields = verb.input.__struct_fields__
    for args, name in itertools.product(usual or [{}], fields):
        base = {key: value for key, value in args.items() if key != "as_of"}
        tuples = isinstance(base.get(name), tuple)
        if name in _PLACES:
            for id in (*hidden.values(), *(id[:-2] for id in hidden.values())):
                yield base | {name: (id,) if tuples else id}
            if name == "label":
                yield base | {name: f"ann/plan {SECRET}"}
        elif name == "schema":
            yield from (base | {name: schema} for schema in _SCHEMAS)
        elif name in ("owner", "with_agent", "author"):
            yield base | {name: "ann"}
        elif name in ("query", "text"):
            yield base | {name: SECRET[:-2]} | ({name: SECRET} if name == "query" else {})
        elif name in ("since", "seq", "from_seq"):
            yield from (base | {name: str(seq)} for seq in (0, 1))
        elif name in ("limit",):
            yield base | {name: 1000}
    if "target" in fields or "seq" in fields:
        name = "target" if "target" in fields else "seq"
        yield from ({name: str(seq)} for seq in range(1, newest + 1))
    if "as_of" in fields and "id" in fields:
        for id in hidden.values():
            yield from ({"id": id, "as_of": str(seq)} for seq in range(1, newest + 1))
    if verb.id in ("data.query", "data.count", "data.list"):
        yield {}
        yield {"limit": 1000} if verb.id != "data.count" else {"schema": "block.entry"}
        yield {"author": "ann"} if verb.id != "data.list" else {"limit": 5}
    if verb.id == "data.log":
        yield {"limit": 1000}
        yield {"limit": 1000, "all": True}


async def told(verb: registry.Verb, u: dgent.Universe, caller: Caller, args: dict[str, Any]) -> str:
    """All that a call says: its answer, or its error with everything on it."""

    async def same() -> dgent.Universe:
        return u

    out: list[bytes] = []
    context = Context(same, caller=caller, out=out.append)
    try:
        result = registry.call(verb, context, args)
        if verb.streams:
            said = b""
            async with aclosing(result) as entries:
                try:
                    async with asyncio.timeout(0.05):
                        async for entry in entries:
                            said += msgspec.json.encode(entry)
                except TimeoutError:
                    pass
        else:
            said = msgspec.json.encode(await result)
        return said.decode() + b"".join(out).decode()
    except DgentError as error:
        return f"{error} {error.hint} {error.details} {getattr(error, '__notes__', '')} {error.__cause__}"


def shows(verb: registry.Verb, args: dict[str, Any], answer: str) -> bool:
    """Whether an answer has the secret; what the caller said himself is no secret to him."""
    asked = str(args)
    for said in sorted({str(value) for value in args.values()}, key=len, reverse=True):
        if SECRET in said:
            answer = answer.replace(said, "")
    return SECRET in answer and (SECRET not in asked or len(answer.split(SECRET)) > 2 + asked.count(SECRET))


@pytest.mark.parametrize("trust", BELOW)
@pytest.mark.parametrize("noun", NOUNS)
async def test_no_verb_tells_of_another_agent(
    noun: str, trust: Trust, planted: tuple[dgent.Universe, dict[str, str]]
) -> None:
    u, hidden = planted
    verbs = [registry.find(id) for id in CASES if id.startswith(f"{noun}.")]
    newest = await u.seq()
    for verb in sorted(verbs, key=lambda verb: verb.effect != "read"):
        for caller in (Caller("mail", "eve", trust), Caller("mail", None, trust)):
            # What a friend is not told, others are not told either: they ask some of it in a short look.
            for args in some(asks(verb, hidden, newest), 1000 if trust == "friend" else 25):
                answer = await told(verb, u, caller, args)
                assert not shows(verb, args, answer), (args, answer)


async def test_a_partner_and_the_owner_see_it(planted: tuple[dgent.Universe, dict[str, str]]) -> None:
    u, hidden = planted
    for caller in (Caller("here", None, "partner"), Caller("mail", "ann", "conversant")):
        for id in ("block", "version", "entry"):
            assert SECRET in await told(registry.find("data.history"), u, caller, {"id": hidden[id]})
        assert SECRET in await told(registry.find("data.query"), u, caller, {"schema": "block.entry"})
        assert SECRET in await told(registry.find("data.log"), u, caller, {"limit": 1000})


async def test_what_is_shared_is_seen(planted: tuple[dgent.Universe, dict[str, str]]) -> None:
    u, hidden = planted
    eve = Caller("mail", "eve", "conversant")
    for verb, args in {
        "data.get": {"id": hidden["given"]},
        "data.query": {"schema": "block.block"},
        "data.list": {"prefix": hidden["given"]},
        "data.history": {"id": f"{hidden['given']}/u/0000000001"},
        "data.changes": {},
        "data.log": {"limit": 1000, "all": True},
    }.items():
        assert hidden["given"] in await told(registry.find(verb), u, eve, args), verb
    await Library(u, agent="ann").unshare("given", with_agent="eve")
    for verb in ("data.get", "data.history"):
        assert "not_found" in repr(await _code(u, eve, verb, hidden["given"]))


async def _code(u: dgent.Universe, caller: Caller, verb: str, id: str) -> str:
    async def same() -> dgent.Universe:
        return u

    try:
        await registry.call(registry.find(verb), Context(same, caller=caller), {"id": id})
    except DgentError as error:
        return error.code
    return "done"
