"""The plan of a coding task: the task is a trail, its steps are crumbs.

An attempt that is given up is an abandoned trail: its steps go, the files it changed are put back, and its
lesson stays, which the next attempt is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.tables.crumb import Crumb
from dgent.cupboard.tables.trail import Trail
from dgent.errors import DgentError, InputError, NotFound
from dgent.runtime.code.room import FILE
from dgent.runtime.code.workspace import Workspace
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Tool
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe

MAX_STEPS = 50
MAX_NAME = 200
LESSONS = 10  # that an attempt is shown
StepState = Literal["doing", "done", "dropped"]
_STATES = {"taken": "doing", "pebble": "done", "dust": "dropped"}


class Step(NamedTuple):
    """One step of a plan; its state is open, doing, done or dropped."""

    name: str
    state: str


class Plan:
    """The plan of one task: `Plan(u, "coder", workspace, goal="fix the test")`; `u` may do everything."""

    def __init__(self, universe: Universe, agent: str, workspace: Workspace, goal: str = "") -> None:
        self.goal = goal
        self.agent = agent
        self.trail: Trail | None = None
        self.given_up = False
        self._universe, self._workspace = universe, workspace
        self._cupboard = Cupboard(universe.acting(Principal(agent, "partner")))

    async def begin(self) -> Trail:
        """Return the trail of the task, which is started if need be; one that was left active goes on."""
        if self.trail is None:
            name = " ".join(self.goal.split())[:MAX_NAME] or "a coding task"
            found = await self._cupboard.trails.fetch(name=name, state="active")
            same = [each for each in found if each.goal == self.goal]
            self.trail = same[0] if same else await self._cupboard.start(name, self.goal)
        return self.trail

    async def lessons(self) -> list[str]:
        """Return what earlier attempts at the same goal taught, the oldest first."""
        found = await self._cupboard.lessons(limit=None)
        same = [each for each in found if each.goal == self.goal and self.goal]
        return [f"{each.lesson} (given up: {each.reason})" for each in reversed(same[:LESSONS])]

    async def steps(self) -> list[Step]:
        """Return the steps in their order; empty where there is no plan."""
        return [Step(each.name, _STATES.get(each.state, "open")) for each in await self._crumbs()]

    async def _crumbs(self) -> list[Crumb]:
        if self.trail is None or self.given_up:
            return []
        found = await self._cupboard.crumbs.fetch(trail_id=self.trail.id)
        return sorted(found, key=lambda each: each.id)  # ids grow with time

    async def set_steps(self, names: Sequence[str]) -> list[Step]:
        """Make these the steps: those that are there keep their states, and unfinished others are dropped."""
        wanted = list(dict.fromkeys(" ".join(name.split())[:MAX_NAME] for name in names if name.strip()))
        if not 1 <= len(wanted) <= MAX_STEPS:
            raise InputError(f"a plan has 1 to {MAX_STEPS} steps, not {len(wanted)}", field="steps")
        trail = await self.begin()
        known = await self._crumbs()
        left = [each for each in known if each.name not in wanted and each.state not in ("pebble", "dust")]
        if left:
            await self._cupboard.finish(left, "drop", agent=self.agent, force=True)
        there = {each.name for each in known}
        new = [Crumb(name, "ready") for name in wanted if name not in there]
        if new:
            await self._cupboard.add_many(new, trail=trail)
        return await self.steps()

    async def move(self, number: int, state: StepState) -> list[Step]:
        """Set the state of a step, counted from 1; one that has it already is left as it is."""
        crumbs = await self._crumbs()
        if not 1 <= number <= len(crumbs):
            raise NotFound(f"there is no step {number}", hint=f"the plan has {len(crumbs)} steps")
        crumb = crumbs[number - 1]
        if _STATES.get(crumb.state, "open") != state:
            if state == "doing":
                await self._cupboard.take_one(crumb, self.agent)
            else:
                how = self._cupboard.done if state == "done" else self._cupboard.drop
                await how(crumb, agent=self.agent, force=True)
        return await self.steps()

    async def give_up(self, reason: str, lesson: str) -> list[str]:
        """Abandon the attempt with its lesson, and put its files back; return those that could not be."""
        trail = await self.begin()
        if self.given_up:
            return []
        kept = await self._take_back(trail)
        await self._cupboard.abandon(trail, reason=reason, lesson=lesson)
        self.given_up = True
        return kept

    async def close(self) -> None:
        """Complete the trail if no step is left open; one with open steps stays active, to go on later."""
        if self.trail is None or self.given_up:
            return
        if all(each.state in ("done", "dropped") for each in await self.steps()):
            await self._cupboard.complete(self.trail)
            self.trail = None

    async def _take_back(self, trail: Trail) -> list[str]:
        """Undo the changes of files since the attempt began, the newest first; return what was refused."""
        identity = self._workspace.identity()
        begun = (await self._universe.history(trail.id))[-1].seq
        made: list[int] = []
        undone: set[int | None] = set()
        since = begun
        while found := await self._universe.changes(since):
            for change in found:
                since = change.seq or since
                files = [
                    each.datum for each in change.items if each.schema == FILE and each.datum is not None
                ]
                if change.kind == "undo":
                    undone.add(change.of_seq)
                elif change.author in (self.agent, self._universe.author) and any(
                    each.data["workspace"] == identity and not each.data.get("found") for each in files
                ):
                    made.append(since)
        kept: list[str] = []
        for seq in reversed([each for each in made if each not in undone]):
            try:
                await self._universe.undo(seq)
            except DgentError as error:
                kept.append(error.message)
        return kept


def plan_tools(plan: Plan) -> list[Tool]:
    """Return the tools `plan`, `step` and `give_up` of a task."""

    async def set_plan(steps: Annotated[list[str], "the steps, in order, a few words each"]) -> Answer:
        """Write down the steps of the task; call it again with all steps to change the plan."""
        return _show(await plan.set_steps(steps))

    async def step(
        number: Annotated[int, "the step, from 1"],
        state: Annotated[StepState, "what it becomes"],
    ) -> Answer:
        """Say that you begin a step, that it is done, or that it is not needed."""
        return _show(await plan.move(number, state))

    async def give_up(
        reason: Annotated[str, "why this attempt does not work"],
        lesson: Annotated[str, "what the next attempt should know"],
    ) -> Answer:
        """Give this attempt up: its changes of files are taken back, and the lesson is kept."""
        kept = await plan.give_up(reason, lesson)
        said = "given up; the files are as they were" if not kept else "given up; some files stay as they are"
        return {"ok": True, "message": said, "data": {"kept": kept} if kept else None}

    return [
        function_tool(set_plan, name="plan", effect="append", kind="think", repeatable=True),
        function_tool(step, effect="append", kind="think", repeatable=True),
        function_tool(give_up, effect="write", kind="edit", repeatable=True),
    ]


def _show(steps: Sequence[Step]) -> Answer:
    lines = [{"step": number, "name": each.name, "state": each.state} for number, each in enumerate(steps, 1)]
    return {"ok": True, "message": f"{len(lines)} steps", "data": {"steps": lines}}
