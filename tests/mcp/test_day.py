"""A whole working day of two agents over the protocol, in two processes at the same time."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.model.schema import Schema
from tests.mcp.host import Host, command, connect, environment, server

FACT: Schema[Any] = Schema("fact", text={"text": 1})
AGENTS = ("ann", "ben")
TASKS = 6
ROUNDS = 4


async def prepare(store: Path) -> None:
    """A lead writes a plan that both may add to, and the tasks of the day."""
    async with dgent.open(f"sqlite:///{store}", author="lead") as u:
        library = Library(u, "lead")
        await library.create("plan", text="Ship the harbour map.")
        for agent in AGENTS:
            await library.agents.create(agent)
            await library.share("plan", with_agent=agent)
        await u.put(dgent.Datum(id="tally", data={"soundings": 0}))
        u.register(FACT)
        await u.remember({"text": "The harbour is silted up near the old lighthouse."}, schema=FACT)
        cupboard = Cupboard(u)
        for n in range(TASKS):
            await cupboard.add(f"Survey pier {n}", state="ready")


async def prompt(host: Host, name: str, **arguments: str) -> str:
    (message,) = (await host.client.get_prompt(name, arguments)).messages
    text: str = message.content.text
    return text


async def work(host: Host, agent: str, noon: asyncio.Barrier) -> list[str]:
    """The day of one agent; returns the tasks that it did."""
    text = await prompt(host, "load-memory")
    assert f"You are {agent}." in text and "lead/plan" in text and "Survey pier" in text
    assert "Ship the harbour map." in await host.read("dgent://block/lead/plan")
    assert "lead" in str((await host.do("find", words="harbour"))["items"])
    found = (await host.do("find", words="lighthouse"))["items"]
    assert found and "silted" in str(found)
    await host.do("block_create", label="notes", text=f"Day of {agent}.")

    done = []
    while (answer := await host.call("work_take"))["ok"] and answer["data"]:
        task = answer["data"]
        assert task["holder"] == agent
        await host.do("work_end", operation="comment", id=task["id"], text=f"{agent} is there")
        await host.do("block_append", label="notes", text=f"\n{task['name']} is done.")
        await host.do("block_edit", operation="append", label="lead/plan", text=f"\n{task['name']}: {agent}")
        await host.do("work_end", operation="done", id=task["id"])
        done.append(task["name"])
    await noon.wait()  # else the slower one would take what the other leaves for tomorrow

    conflicts = await count(host)
    await host.do(
        "block_replace", label="notes", old=f"Day of {agent}.", new=f"Day of {agent}, {conflicts} conflicts."
    )

    trail = await host.do("trail", operation="start", name=f"Dredge ({agent})", goal="ships pass")
    await host.do("work_add", name=f"Hire a dredger ({agent})", trail=trail["id"])
    await host.do(
        "trail",
        operation="abandon",
        id=trail["id"],
        reason="no money",
        lesson=f"{agent}: ask for a budget first.",
    )
    text = await prompt(host, "hand-over")
    assert f"{agent}: ask for a budget first." in text
    left = await host.do("work_add", name=f"Print the map ({agent})")
    await host.do("work_end", operation="comment", id=left["id"], text=f"{agent} leaves this to tomorrow")
    await host.do("block_append", label="notes", text="\nThe map is left to print.")
    return done


async def count(host: Host) -> int:
    """Add to a number that both agents write, each time as it was read; returns the conflicts on the way."""
    conflicts = 0
    for _ in range(ROUNDS):
        while True:
            record = await host.do("data", operation="get", id="tally")
            await asyncio.sleep(0.002)  # thinking
            answer = await host.call(
                "data",
                operation="put",
                id="tally",
                data={"soundings": record["data"]["soundings"] + 1},
                expect=record["rev"],
            )
            if answer["ok"]:
                break
            assert answer["data"]["code"] == "version_conflict" and "read again" in answer["data"]["hint"]
            conflicts += 1
    return conflicts


async def hit_a_conflict(one: Host, two: Host) -> None:
    """Both read, both write: the second is told, and nothing of the first is lost."""
    record = await one.do("data", operation="get", id="tally")
    change: dict[str, Any] = {"operation": "put", "id": "tally", "expect": record["rev"]}
    answers = await asyncio.gather(
        *(host.call("data", **change, data={"soundings": 0, "by": n}) for n, host in enumerate((one, two)))
    )
    assert sorted(answer["ok"] for answer in answers) == [False, True]
    (lost,) = [answer for answer in answers if not answer["ok"]]
    assert lost["data"]["code"] == "version_conflict" and "read again" in lost["data"]["hint"]


def run(store: Path, *words: str) -> str:
    """What a command prints that must succeed."""
    words = ("--url", f"sqlite:///{store}", *words)
    done = subprocess.run(command(*words), env=environment(store.parent), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_two_agents_work_a_day(store_path: Path) -> None:
    store = store_path / "s.db"
    await prepare(store)
    to = server(store, "--tools", "everyday,memory,data")
    async with connect(to, "ann") as ann, connect(to, "ben", "auto") as ben:
        await hit_a_conflict(ann, ben)
        noon = asyncio.Barrier(2)
        done = await asyncio.gather(work(ann, "ann", noon), work(ben, "ben", noon))

    assert sorted(done[0] + done[1]) == [f"Survey pier {n}" for n in range(TASKS)], "each once"
    async with dgent.open(f"sqlite:///{store}") as u:
        tally = await u.get("tally", raw=True)
        assert tally.data["soundings"] == ROUNDS * len(AGENTS)
        plan = await (await Library(u, "lead").get("plan")).text()
        for agent, names in zip(AGENTS, done, strict=True):
            notes = await (await Library(u, agent).get("notes")).text()
            assert all(f"{name} is done." in notes and f"{name}: {agent}" in plan for name in names)
            assert notes.endswith("The map is left to print.")
        names = [crumb.name for crumb in await Cupboard(u).ready()]
        assert sorted(names) == [f"Print the map ({agent})" for agent in AGENTS]

    log = run(store, "log", "-n", "200")
    commits = [commit.strip().splitlines() for commit in log.split("\ncommit ")]
    for agent, names in zip(AGENTS, done, strict=True):
        mine = ["\n".join(commit[1:]) for commit in commits if f"  {agent}  " in commit[0]]
        for name in names:
            assert any(f"{agent} took ‘{name}’" in each for each in mine)
        assert any(f"{agent} began the trail ‘Dredge ({agent})’" in each for each in mine)
        assert any(f"Print the map ({agent})" in each for each in mine)
        assert not any(f"({other})" in each for other in AGENTS if other != agent for each in mine)
    run(store, "doctor", "--deep")
