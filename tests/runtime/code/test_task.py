"""The coding agent, end to end: a scripted model, a real repository, real files, real test runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent.cupboard.cupboard import Cupboard
from dgent.errors import InputError
from dgent.runtime.code.plan import Plan
from dgent.runtime.code.task import CodingAgent
from dgent.runtime.code.workspace import Workspace
from dgent.runtime.event import Done, Event, Failed, Notice, ToolFinished
from dgent.runtime.model.script import ScriptedModel

TASK = "make the test pass"
CHECK = f"{sys.executable} -B check.py"
BROKEN = "def count(words):\n    return len(words.split(' '))\n"
FIXED = "def count(words):\n    return len(words.split())\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository with a bug, and a test that shows it."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "words.py").write_text(BROKEN)
    (root / "check.py").write_text(
        "from words import count\nassert count('a  b') == 2, count('a  b')\nprint('passed')\n"
    )
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "start")):
        subprocess.run([*git, *words], cwd=root, check=True)
    return root


def call(name: str, expect: Any = (), **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}], "expect": expect}


FIX = [
    call("plan", steps=["see it fail", "fix it", "see it pass"]),
    call("run", "3 steps", command=CHECK),
    call("step", "AssertionError", number=1, state="done"),
    call("read", '"done"', path="words.py"),
    call("edit", "split(' ')", path="words.py", old="split(' ')", new="split()"),
    call("run", "undo", command=CHECK),
    call("step", "passed", number=2, state="done"),
    call("step", number=3, state="done"),
    {"text": "The test passes."},
]
GIVE_UP = [
    call("edit", path="words.py", old="split(' ')", new="split(',')"),
    call("write", "undo", path="notes.txt", text="tried a comma\n"),
    call("run", "undo", command=CHECK),
    call("give_up", "AssertionError", reason="it has no comma", lesson="split without an argument"),
]


async def collect(agent: CodingAgent, task: str = TASK) -> list[Event]:
    return [event async for event in agent.work(task)]


def results(events: Sequence[Event]) -> list[str]:
    return [f"{each.name}: {each.text}" for each in events if isinstance(each, ToolFinished) and each.error]


async def test_a_bug_is_fixed(repository: Path, tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/u.db", author="ada") as u:
        async with CodingAgent(u, "coder", repository, model=ScriptedModel(FIX), mode="auto") as coder:
            events = await collect(coder)
        assert isinstance(events[-1], Done), events[-1]
        assert events[-1].text == "The test passes."
        assert len(results(events)) == 1  # the test that was to fail
        assert (repository / "words.py").read_text() == FIXED
        (trail,) = await Cupboard(u).trails.fetch()
        assert trail.state == "completed"
        assert len(trail.crumbs) == 3
        done = await Cupboard(u).crumbs.fetch()
        assert {each.state for each in done} == {"pebble"}
        seq = next(each.seq for each in await u.changes() if each.note == "edit words.py")
        assert seq is not None
        await u.undo(seq)
        assert (repository / "words.py").read_text() == BROKEN


async def test_a_failed_attempt_is_taken_back_and_teaches_the_next(repository: Path, tmp_path: Path) -> None:
    second = [{**FIX[0], "expect": ("What they taught", "split without an argument")}, *FIX[1:]]
    model = ScriptedModel([*GIVE_UP, *second])
    async with dgent.open(f"sqlite:///{tmp_path}/u.db", author="ada") as u:
        async with CodingAgent(u, "coder", repository, model=model, mode="auto") as coder:
            events: list[Event] = []
            async for event in coder.work(TASK):
                events.append(event)
                if isinstance(event, Notice) and event.code == "given_up":
                    assert (repository / "words.py").read_text() == BROKEN
                    assert not (repository / "notes.txt").exists()
        assert model.left == 0
        assert isinstance(events[-1], Done)
        assert sum(isinstance(each, Done) for each in events) == 1
        assert (repository / "words.py").read_text() == FIXED
        trails = {each.state: each for each in await Cupboard(u).trails.fetch()}
        assert set(trails) == {"completed", "abandoned"}
        assert trails["abandoned"].lesson == "split without an argument"
        assert await Cupboard(u).lessons("comma") != []


async def test_all_attempts_fail(repository: Path, tmp_path: Path) -> None:
    model = ScriptedModel(GIVE_UP, repeat=True)
    async with dgent.open(f"sqlite:///{tmp_path}/u.db") as u:
        async with CodingAgent(u, "coder", repository, model=model, mode="auto", attempts=2) as coder:
            events = await collect(coder)
        assert isinstance(events[-1], Done)
        assert len(await Cupboard(u).lessons()) == 2
        assert (repository / "words.py").read_text() == BROKEN


async def test_what_others_changed_meanwhile_stays(repository: Path, tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/u.db", author="ada") as u:
        model = ScriptedModel([*GIVE_UP[:1], {"text": "done"}])
        async with CodingAgent(u, "coder", repository, model=model, mode="auto") as coder:
            coder.plan.goal = TASK
            await coder.plan.set_steps(["one"])
            events = [event async for event in coder.runtime.respond(TASK)]
            assert isinstance(events[-1], Done)
            (repository / "words.py").write_text("# mine\n")
            kept = await coder.plan.give_up("no", "leave it")
            assert len(kept) == 1
            assert "words.py" in kept[0]
            assert await coder.plan.give_up("no", "again") == []
        assert (repository / "words.py").read_text() == "# mine\n"


async def test_an_attempt_that_was_stopped_goes_on(repository: Path, tmp_path: Path) -> None:
    """The changes of a program that was killed belong to the attempt, and are taken back with it."""
    script = tmp_path / "script.jsonl"
    hang = {"text": "x", "delay_s": 60.0}
    script.write_bytes(b"\n".join(msgspec.json.encode(each) for each in [FIX[0], *GIVE_UP[:1], hang]))
    program = (
        "import asyncio, os, dgent\n"
        "from dgent.runtime.code.task import CodingAgent\n"
        "from dgent.runtime.event import ToolFinished\n"
        "async def main():\n"
        f"    async with dgent.open('sqlite:///{tmp_path}/u.db', author='ada') as u:\n"
        f"        c = CodingAgent(u, 'coder', {str(repository)!r}, model='script:{script}', mode='auto')\n"
        f"        async for e in c.work({TASK!r}):\n"
        "            if isinstance(e, ToolFinished) and e.name == 'edit': os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=100)
    assert ended.returncode == -9
    assert (repository / "words.py").read_text() != BROKEN
    async with dgent.open(f"sqlite:///{tmp_path}/u.db", author="ada") as u:
        model = ScriptedModel([GIVE_UP[-1] | {"expect": ()}, *FIX])
        async with CodingAgent(u, "coder", repository, model=model, mode="auto") as coder:
            events = await collect(coder)
        assert isinstance(events[-1], Done), events
        assert (repository / "words.py").read_text() == FIXED
        (seq,) = [each.seq for each in await u.changes() if each.kind == "undo"]
        assert seq
        assert sorted(each.state for each in await Cupboard(u).trails.fetch()) == ["abandoned", "completed"]


async def test_modes_decide_what_is_asked(repository: Path, tmp_path: Path) -> None:
    edit = call("edit", path="words.py", old="split(' ')", new="split()")
    run = call("run", command=CHECK)
    for mode, failed in (("plan", 2), ("ask", 2), ("code", 1), ("auto", 0)):
        (repository / "words.py").write_text(BROKEN)
        async with dgent.open("memory:") as u:
            model = ScriptedModel([edit, run, {"text": "done"}])
            async with CodingAgent(u, "coder", repository, model=model, mode=mode) as coder:
                events = await collect(coder)
            assert len(results(events)) == failed, (mode, results(events))
    with pytest.raises(InputError, match="not a valid mode"):
        CodingAgent(u, "coder", repository, model="script:x", mode="yolo")


async def test_consent_is_asked_for_once_and_kept_for_its_scope(repository: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    async def ask(request: Any) -> str:
        asked.append(request.scope)
        return "scope"

    edits = [
        call("edit", path="words.py", old=old, new=new) for old, new in (("count", "size"), ("words", "text"))
    ]
    for each in edits:
        each["calls"][0]["arguments"]["all"] = True
    async with dgent.open("memory:", author="ada") as u:
        model = ScriptedModel([*edits, {"text": "done"}])
        async with CodingAgent(u, "coder", repository, model=model, ask=ask) as coder:
            events = await collect(coder)
        assert results(events) == []
        assert asked == ["write:words.py"]
        assert (repository / "words.py").read_text().startswith("def size(text)")


async def test_a_turn_that_fails_leaves_its_trail_active(repository: Path) -> None:
    async with dgent.open("memory:") as u:
        model = ScriptedModel([FIX[0], {"error": "model_refused"}])
        async with CodingAgent(u, "coder", repository, model=model, mode="auto") as coder:
            events = await collect(coder)
        assert isinstance(events[-1], Failed)
        (trail,) = await Cupboard(u).trails.fetch()
        assert trail.state == "active"


async def test_plans_are_checked(repository: Path) -> None:
    async with dgent.open("memory:", author="ada") as u:
        with Workspace(repository) as workspace:
            plan = Plan(u, "coder", workspace, "a goal")
            assert await plan.steps() == []
            with pytest.raises(InputError, match="1 to 50 steps"):
                await plan.set_steps([" "])
            with pytest.raises(InputError, match="1 to 50 steps"):
                await plan.set_steps([str(n) for n in range(51)])
            await plan.set_steps(["a", "b", "a", "c"])
            await plan.move(2, "doing")
            await plan.move(2, "doing")
            await plan.move(1, "done")
            assert [tuple(each) for each in await plan.set_steps(["a", "b", "d"])] == [
                ("a", "done"),
                ("b", "doing"),
                ("c", "dropped"),
                ("d", "open"),
            ]
            with pytest.raises(dgent.NotFound):
                await plan.move(9, "done")
