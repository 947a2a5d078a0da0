"""The call context of a verb: universe, settings, caller, and where progress goes."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dgent.errors import Denied, Unsupported
from dgent.verbs.caller import HERE, Caller

if TYPE_CHECKING:
    from dgent.blocks.access.permission import Consent
    from dgent.blocks.library import Library
    from dgent.config.agent import AgentSettings
    from dgent.config.settings import Settings
    from dgent.cupboard.cupboard import Cupboard
    from dgent.membrane.shell import Shell
    from dgent.system.progress import Progress
    from dgent.universe.universe import Universe


Choose = Callable[[str, Sequence[str]], Awaitable[str]]


def unheard(_done: int, _total: int | None) -> None:
    """Ignore progress."""


class Context:
    """The context of a call, or of all calls of one caller; a door creates it, a program uses `invoke`."""

    def __init__(
        self,
        universe: Callable[[], Awaitable[Universe]] | None = None,
        *,
        settings: Settings | None = None,
        caller: Caller = HERE,
        report: Progress = unheard,
        local: bool = True,
        out: Callable[[bytes], object] | None = None,
        consent: Consent | None = None,
        library: Library | None = None,
        missing: Path | None = None,
        choose: Choose | None = None,
        upload: Path | AsyncIterable[bytes] | None = None,
        constellation: str | None = None,
        remote: bool = False,
        shell: Shell | None = None,
        agents: Callable[[str], AgentSettings] | None = None,
    ) -> None:
        self._universe, self._settings, self._constellation = universe, settings, constellation
        self.caller, self.report, self.local = caller, report, local
        self.consent = consent  # who is asked where a block wants the partner or a human to agree
        self.library = library  # one that a program has already, with its own trust and consent
        self.missing = missing  # where the store will be that nothing has been written to yet
        self.choose = choose  # asks a person a question with a few answers; None where nobody is there
        self.cupboard: Cupboard | None = None  # that of the last call, which knows the definitions
        self.upload = upload  # what a verb that reads a file reads when the file is called "-"
        self.out = out  # where a verb that writes a file writes when the file is called "-"
        self.shell = shell  # the one that called; None where none did
        self._agents = agents  # finds the settings of an agent where there are no settings of a machine
        self.remote = remote  # whether the store is on a server, which then does the work

    def copy(
        self,
        *,
        out: Callable[[bytes], object] | None = None,
        upload: Path | AsyncIterable[bytes] | None = None,
    ) -> Context:
        """Return this context for one call that writes or reads a file called "-"."""
        twin = object.__new__(Context)
        twin.__dict__.update(self.__dict__, out=out, upload=upload)
        return twin

    async def universe(self, as_of: str | None = None) -> Universe:
        """Return the universe of this call, limited to the caller's permissions; opens it at first use.

        With `as_of` as it was then, for reading.
        """
        universe = await self._find_universe()
        if as_of is None:
            return universe
        from dgent.verbs import parse  # few calls look back

        moment = parse.point(as_of)
        assert moment is not None
        return await universe.at(moment)

    async def _find_universe(self) -> Universe:
        if self._universe is None:
            raise Unsupported("there is no store here", hint="give --url or a constellation")
        universe = await self._universe()
        if self.caller.trust == "partner":
            return universe
        from dgent.universe.gate import Gate, Principal  # only a limited caller needs it

        who = Principal(self.caller.agent or self.caller.id, self.caller.trust)
        if isinstance(universe.backend, Gate) and universe.backend.principal == who:
            return universe
        return universe.acting(who)

    @property
    def settings(self) -> Settings:
        """The settings and folders of this machine; raises Unsupported where there are none."""
        if self._settings is None:
            raise Unsupported("this needs the settings of a machine", hint="use the command line")
        return self._settings

    def find_agent(self, name: str) -> AgentSettings:
        """Return the settings of an agent; those of any where nothing is known of it."""
        from dgent.config.agent import AgentSettings, find_agent  # few calls are about agents that run

        if self._agents is not None:
            return self._agents(name)
        return AgentSettings() if self._settings is None else find_agent(self._settings, name)

    @property
    def constellation(self) -> str | None:
        """The name of the constellation; None for a store that is not one."""
        return self._constellation if self._settings is None else self._settings.constellation

    @property
    def folder(self) -> Path | None:
        """The folder of the constellation; None for a store that is not one."""
        return None if self._settings is None else self._settings.folder

    @property
    def shows_place(self) -> bool:
        """True unless the caller is elsewhere and no partner: paths of this machine are not for it."""
        return self.local or self.caller.trust == "partner"

    def check_local(self, verb: str, local: bool) -> None:
        """Raise Denied when a remote caller calls a verb that touches local files."""
        if local and not self.local:
            raise Denied(f"{verb} works on files of the machine it runs on", hint="run it there", verb=verb)
