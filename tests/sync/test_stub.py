"""The types in the stub are those of the async classes, and type checkers accept them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tools import sync_stubs

ROOT = Path(__file__).parents[2]

GOOD = """
    from dataclasses import dataclass
    from typing import Any, assert_type

    import dgent
    from dgent import sync
    from dgent.model.lens import Lens
    from dgent.store.backend import Change, Committed
    from dgent.sync.blocks import Block, Library, Request, Roster, Section, Version, View
    from dgent.runtime import AgentAnswer, Limits, ScriptedModel
    from dgent.runtime.event import Event
    from dgent.sync.cupboard import Config, Crumb, Cupboard, Table, Trail
    from dgent.sync.messages import Messages
    from dgent.sync.runtime import AgentRuntime


    @dataclass
    class Mark:
        what: str


    with sync.open("memory:", author="scout") as u:
        assert_type(u, sync.Universe)
        u.register(dgent.Schema("mark", contract=Mark))
        mark = u.remember(Mark("a"), tags={"x"})
        assert_type(mark, dgent.Crystal[Mark])
        assert_type(u.remember({"a": 1}), dgent.Datum)
        assert_type(u.remember({"a": 1}, schema="note"), dgent.Crystal[dict[str, int]])
        assert_type(u.author, str)
        for change in u.watch(since=0):
            assert_type(change, Change)
            break
        with u.watch() as stream:
            stream.close()
        with u.transaction(note="why") as tx:
            assert_type(tx, sync.Transaction)
            tx.remember(Mark("b"))
        assert_type(tx.committed, Committed | None)
        marks = u.collection(Mark)
        assert_type(marks, sync.Collection[Mark])
        assert_type(marks.get("a"), dgent.Crystal[Mark] | None)
        lens: Lens[Mark, str] = Lens(lambda m: m.what, lambda m, what: Mark(what))
        u.focus("a", lens).modify(lambda what: what.upper())
        assert_type(u.transact(lambda tx: len(tx.query(dgent.Query()))), int)
        u.upgrade_all(Mark, progress=lambda done, all: None)
        sync.set_universe(u)
        assert_type(sync.get_universe(), sync.Universe)


    with Cupboard.attach(Config("memory")) as cupboard:
        assert_type(cupboard, Cupboard)
        assert_type(cupboard.crumbs.get("a"), Crumb)
        assert_type(cupboard.table("crumbs"), Table[Any])
        cupboard.trails.set(None, Trail("a"))
        with cupboard.explore("try") as trail:
            assert_type(trail, Trail)
        with cupboard.stashes.held("lock", "me") as token:
            assert_type(token, int)
        assert_type(cupboard.take("scout"), Crumb | None)
        assert_type(cupboard.universe, sync.Universe)
        Cupboard(cupboard.universe).attach(Config("memory")).detach()


    def agree(request: Request) -> bool:
        return request.operation == "append"


    library = Library(u, agent="scout", consent=agree)
    assert_type(library.agent, str)
    assert_type(library.agents, Roster)
    persona = library.create("persona", text="plain", limit=100)
    assert_type(persona, Block)
    assert_type(persona.append("!", expect=persona.version), Version)
    assert_type(persona.at(1), View)
    assert_type(persona.section("goals"), Section)
    assert_type([each.label for each in library.list(shared=True)], list[str])
    assert_type(library.render(budget_tokens=100, tokens=len), str)


    def add(a: int) -> int:
        return a


    with AgentRuntime(u, "scout", model=ScriptedModel(["Yes"]), tools=[add], limits=Limits()) as agent:
        assert_type(agent, AgentRuntime)
        assert_type(agent.run("Is it?", key="k"), AgentAnswer)
        with agent.respond("Is it?") as events:
            for event in events:
                assert_type(event, Event)
        assert_type([each.id for each in agent.interrupted()], list[str])
        assert_type(agent.work(wait_s=1), AgentAnswer | None)
        assert_type(agent.messages, Messages)
        assert_type(agent.universe, sync.Universe)


    class Scout(sync.DataMixin):
        def look(self) -> dgent.Crystal[Mark]:
            return self.remember(Mark("seen"))
"""

BAD = """
    import dgent
    from dgent import Query, sync
    from dgent.sync.blocks import Library, Request
    from dgent.sync.cupboard import Cupboard, Trail
    u = sync.open("memory:", speed=3)
    u.remember("a", tag="x")
    u.count(Query()).upper()
    u.author = "other"
    u.frobnicate()
    marks = u.collection(int)
    marks.remember("text")
    for n in u.count():
        pass


    async def wrong() -> None:
        await u.seq()
        async with u:
            pass


    cupboard = Cupboard(dgent.open("memory:"))
    cupboard.crumbs.set(None, Trail("a"))
    with cupboard.explore("try") as trail:
        trail.crumb_id
    cupboard.attach("memory")


    async def agree(request: Request) -> bool:
        return True


    Library(dgent.open("memory:"), agent="scout")
    Library(u, agent="scout", consent=agree)
    Library(u, agent="scout").create("a").write(3)
    from dgent.sync.runtime import AgentRuntime
    AgentRuntime(dgent.open("memory:"), "scout", model="test")
    AgentRuntime(u, "scout", model="test", steps=3)
    AgentRuntime(u, "scout", model="test").run("Is it?").answer
"""


@pytest.mark.parametrize("stub", sync_stubs.STUBS, ids=lambda path: path.name)
def test_the_stub_is_fresh(stub: Path) -> None:
    assert stub.read_text() == sync_stubs.generate(stub), "run `python tools/sync_stubs.py`"


def test_a_type_checker_accepts_the_right_and_refuses_the_wrong(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(textwrap.dedent(GOOD))
    (tmp_path / "bad.py").write_text(textwrap.dedent(BAD))
    # Kept: most of the time goes into what has not changed since the last run.
    cache = ["--config-file", "", "--cache-dir", str(ROOT / ".venv" / "mypy")]
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", *cache]
    done = subprocess.run(
        [*command, "--no-error-summary", "--follow-imports=silent", "good.py", "bad.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    complaints = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line for line in complaints if not line.startswith("bad.py")] == []
    wrong = {int(line.split(":")[1]) for line in complaints}
    assert wrong == {6, 7, 8, 9, 10, 12, 13, 18, 19, 23, 24, 26, 27, 34, 35, 36, 38, 39, 40}, done.stdout
