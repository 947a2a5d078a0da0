"""The position of a flow, kept with the state that it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from dgent import clock
from dgent.errors import Conflict, TransactionConflict, VersionConflict
from dgent.flow.buffer import Event
from dgent.flow.keep import Mark
from dgent.flow.state import StatefulAgent
from dgent.model.datum import Datum


class Progress:
    """The position of a flow with a name; it moves in the commit that saves the state."""

    def __init__(self, agent: StatefulAgent[Any, Any, Any], name: str) -> None:
        self._agent = agent
        self._name = name
        self._id = f"{agent.keeper.name}:flow:{name}"
        self._rev = 0
        self.position: Any = None

    async def load(self) -> None:
        """Read the position of the last event that changed the state."""
        found = await self._agent.keeper.find_mark(self._id)
        if found is not None:
            self._rev, self.position = cast("int", found.rev), found.data["position"]

    async def apply(
        self, batch: Sequence[Event], attempt: Callable[..., Any]
    ) -> tuple[list[Any], Exception | None]:
        """Apply events to the state and save it once; again when another process saved meanwhile.

        Returns the outputs, and the error of the event that ended it.
        """
        for number in range(1, self._agent.attempts + 1):
            held = [Event(each.value, each.position, _twin(each.answer)) for each in batch]
            try:
                done = await self._apply(held, attempt)
            except (VersionConflict, TransactionConflict):
                await self._refuse_rival()
                if number == self._agent.attempts:
                    raise
                await asyncio.sleep(clock.jitter(0, 0.01))
                continue
            _answer(held, batch)
            return done
        raise AssertionError("the last attempt raises")

    async def _apply(
        self, batch: Sequence[Event], attempt: Callable[..., Any]
    ) -> tuple[list[Any], Exception | None]:
        outputs: list[Any] = []
        failed, position = None, self.position
        async with self._agent.run(copy_states=True) as run:
            for event in batch:
                try:
                    done, output = await attempt(event, run.step)
                except Exception as error:
                    failed = error
                    break
                if done and event.answer is None:
                    outputs.append(output)
                if event.answer is None:
                    position = event.position
            await run.save(Mark(self._id, {"position": position}, self._rev))
        if position != self.position or self._rev == 0:
            self._rev += 1
        self.position = position
        return outputs, failed

    async def _refuse_rival(self) -> None:
        """Raise Conflict if another process runs a flow of this name: both would apply the same events."""
        found: Datum | None = await self._agent.keeper.find_mark(self._id)
        if (0 if found is None else found.rev) != self._rev:
            raise Conflict(
                f"another program runs the flow {self._name!r} on {self._agent.keeper.name!r}",
                hint="run it once, or give this one another name",
            )


def _twin(answer: asyncio.Future[Any] | None) -> asyncio.Future[Any] | None:
    """Return a place for an answer until it lasts: the batch may be applied again."""
    return None if answer is None else asyncio.get_running_loop().create_future()


def _answer(held: Sequence[Event], batch: Sequence[Event]) -> None:
    for early, event in zip(held, batch, strict=True):
        if early.answer is None or event.answer is None or event.answer.done() or not early.answer.done():
            continue
        if (error := early.answer.exception()) is not None:
            event.answer.set_exception(error)
        else:
            event.answer.set_result(early.answer.result())
