"""The stores that a server serves, opened when somebody asks for them, and who may come in."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from dgent.blocks import Library
from dgent.errors import Closed, Denied, NotFound, Unsupported
from dgent.universe import token as tokens
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe
from dgent.verbs.caller import Caller
from dgent.verbs.context import Context

if TYPE_CHECKING:
    from dgent.config.agent import AgentSettings
    from dgent.doors.http.feed import Feed
    from dgent.doors.http.mount import MountedServer
    from dgent.doors.http.turn import AgentTurns

Opener = Callable[[AsyncExitStack], Awaitable[Universe]]

TOKEN_S = 1.0  # how long a token that was right is not looked up again
FINISH_S = 60.0  # for requests that are under way when a reload takes their store away
MOST_KEPT = 256  # visitors, and tokens that are known to be right


class AgentDesk(Protocol):
    """Opens the agents that run on a server."""

    def find_settings(self, name: str) -> AgentSettings:
        """Return the settings of an agent."""
        ...

    async def check(self, universe: Universe, name: str) -> None:
        """Raise NotFound where there is no such agent."""
        ...

    def open(self, universe: Universe, name: str, most: int) -> AgentTurns:
        """Return the turns of an agent, of which at most so many run at once."""
        ...


class Visitor:
    """Someone with a token: the store, the agent, and the context of its calls."""

    def __init__(self, store: Served, id: str, principal: Principal, here: bool = False) -> None:
        self.store, self.id, self.principal = store, id, principal
        self.here = here  # a person at this machine, who may act as any agent
        acting = store.universe.acting(principal)

        async def universe() -> Universe:
            return acting

        self.context = Context(
            universe,
            caller=Caller(id, principal.name, principal.trust),
            local=False,
            library=Library(acting, principal.name, trust=principal.trust),
            constellation=store.name,
            agents=None if store.desk is None else store.desk.find_settings,
        )


class Served:
    """One store that is open, with its visitors."""

    def __init__(self, name: str, universe: Universe, agents: AgentDesk | None = None) -> None:
        self.name, self.universe = name, universe
        self.desk = agents
        self._agents: dict[str, AgentTurns] = {}
        self._visitors: OrderedDict[tuple[str, Principal, bool], Visitor] = OrderedDict()
        self._right: OrderedDict[str, tuple[float, tokens.KnownToken]] = OrderedDict()
        self.feeds: dict[object, Feed] = {}
        self.mounted: dict[str, MountedServer] = {}
        self.waits: dict[asyncio.Future[int], str] = {}  # for the next commit, and which visitors wait
        self.ending = False
        self._busy = 0  # requests that are under way
        self._idle = asyncio.Event()

    @contextmanager
    def use(self) -> Iterator[None]:
        """Note a request that is under way: until it ends, a reload leaves the store open."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def finish(self) -> None:
        """Wait until no request is under way, though not for one that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while self._busy:
                    self._idle.clear()
                    await self._idle.wait()

    async def enter(self, token: str) -> Visitor:
        """Return the visitor of a token; raises Denied for a wrong one."""
        now = time.monotonic()
        until, known = self._right.get(token, (0.0, None))
        if known is None or until < now or known.expired:
            self._right.pop(token, None)
            with self.use():
                known = await tokens.check_token(self.universe, token)
            self._right[token] = (now + TOKEN_S, known)
            _forget_old(self._right)
        return self.visitor(known.id, known.principal)

    def visitor(self, id: str, principal: Principal, here: bool = False) -> Visitor:
        """Return the visitor that acts as a principal."""
        key = id, principal, here
        found = self._visitors.get(key)
        if found is None:
            found = self._visitors[key] = Visitor(self, id, principal, here)
            _forget_old(self._visitors)
        return found

    async def agent(self, name: str, most: int) -> AgentTurns:
        """Return the turns of an agent, of which at most so many run at once; opens it at first use."""
        if self.ending:
            raise Closed("this constellation is no longer served")
        found = self._agents.get(name)
        if found is not None:
            return found
        if self.desk is None:
            raise Unsupported("no agents run on this server", hint="`dgent serve` runs them")
        await self.desk.check(self.universe, name)
        if name not in self._agents:  # somebody else may have been first
            self._agents[name] = self.desk.open(self.universe, name, most)
        return self._agents[name]

    async def end_streams(self) -> None:
        """End the feeds of all visitors, what they wait for, and the turns of agents, durably."""
        self.ending = True
        await asyncio.gather(*(turns.close() for turns in self._agents.values()))
        self._agents.clear()
        for wait in self.waits:
            wait.cancel()
        for feed in list(self.feeds.values()):
            await feed.close()

    async def close(self) -> None:
        """End what goes on for visitors."""
        await self.end_streams()
        for server in list(self.mounted.values()):
            await server.close()


def _forget_old(kept: OrderedDict) -> None:  # type: ignore[type-arg]
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)


class House:
    """The stores of a server by their names. The first is the one of addresses without a name."""

    def __init__(self, openers: Mapping[str, Opener], agents: AgentDesk | None = None) -> None:
        self._openers, self._desk = dict(openers), agents
        self._open: dict[str, Served] = {}
        self._stacks: dict[str, AsyncExitStack] = {}
        self._opening = asyncio.Lock()
        self._leaving: list[tuple[Served, AsyncExitStack]] = []  # no longer served, and still in use

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stores."""
        return tuple(self._openers)

    @property
    def default(self) -> str:
        """The name of the store of addresses without one."""
        return next(iter(self._openers))

    def __contains__(self, name: object) -> bool:
        return name in self._openers

    async def store(self, name: str) -> Served:
        """Return a store; opens it at first use."""
        found = self._open.get(name)
        if found is not None:
            return found
        async with self._opening:
            if name in self._open:
                return self._open[name]
            if name not in self._openers:
                raise NotFound(f"there is no constellation {name!r} here", name=name)
            stack = AsyncExitStack()
            try:
                universe = await self._openers[name](stack)
            except BaseException:
                await stack.aclose()
                raise
            self._stacks[name] = stack
            self._open[name] = Served(name, universe, self._desk)
            return self._open[name]

    async def reload(self, openers: Mapping[str, Opener]) -> None:
        """Serve these stores from now on; those that are gone, or are at another place now, are closed.

        New requests find the new stores at once. The old ones finish what is under way before they close.
        """
        leaving: list[tuple[Served, AsyncExitStack]] = []
        async with self._opening:
            before, self._openers = self._openers, dict(openers)
            for name in list(self._open):
                new = self._openers.get(name)
                if new is None or getattr(new, "place", None) != getattr(before[name], "place", None):
                    leaving.append((self._open.pop(name), self._stacks.pop(name)))
            self._leaving += leaving
        for served, _ in leaving:
            await served.end_streams()
        for each in leaving:
            await each[0].finish()
            await self._end(each)

    async def end_streams(self) -> None:
        """End the feeds of all stores."""
        for store in self._open.values():
            await store.end_streams()

    async def close(self) -> None:
        """Close all stores."""
        self._leaving += [(self._open.pop(name), self._stacks.pop(name)) for name in list(self._open)]
        for each in list(self._leaving):
            await self._end(each)

    async def _end(self, leaving: tuple[Served, AsyncExitStack]) -> None:
        if leaving not in self._leaving:
            return  # the server stopped meanwhile
        self._leaving.remove(leaving)
        served, stack = leaving
        await served.close()
        await stack.aclose()


async def enter(house: House, name: str, token: str | None) -> Visitor:
    """Return the visitor who shows a token; raises Denied without a right one, also where no store is."""
    if token is None:
        raise Denied("this needs a token", hint="send Authorization: Bearer <token>; `dgent token create`")
    try:
        store = await house.store(name)
    except NotFound:
        raise Denied("the token is wrong, or was revoked") from None
    return await store.enter(token)
