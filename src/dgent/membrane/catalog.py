"""The agents of a project, in its `.dgent/catalog.json`, where people and git can see them.

A change reads the file, and puts a new one in its place, while it holds a lock on the folder: two processes
that register at once lose nothing. What else the file says stays in it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dgent import ids
from dgent.config import file
from dgent.config.places import make_private
from dgent.errors import Busy, ConfigError, InputError, NotFound
from dgent.system import files
from dgent.system.near import nearest

NAME = "catalog.json"
WAIT_S = 30.0


class CatalogAgent(msgspec.Struct, frozen=True):
    """An agent of a project: its kind, how it is started, and what it can do. `entry` is never run."""

    name: str
    genus: str
    entry: str = ""
    capabilities: tuple[str, ...] = ()


class Catalog:
    """The catalog of a project: `Catalog(folder)`."""

    def __init__(self, project: str | Path) -> None:
        self._project = Path(project)
        self.path = self._project / ".dgent" / NAME

    def list(self) -> list[CatalogAgent]:
        """Return the agents, by name; those whose entries are not valid are left out."""
        found = (_read_agent(name, given) for name, given in sorted(self._agents().items()))
        return [each for each in found if each is not None]

    def get(self, name: str) -> CatalogAgent:
        """Return an agent; raises NotFound."""
        known = {each.name: each for each in self.list()}
        if name not in known:
            raise NotFound(f"there is no agent {name!r} in {self.path}", hint=nearest(name, known))
        return known[name]

    def register(
        self, name: str, genus: str, entry: str = "", capabilities: Iterable[str] = ()
    ) -> CatalogAgent:
        """Put an agent into the catalog, in place of one with its name; fields it does not know stay."""
        agent = CatalogAgent(
            ids.check_name(name, "name"),
            ids.check_name(genus, "genus"),
            entry,
            tuple(dict.fromkeys(ids.check_name(each, "capabilities") for each in capabilities)),
        )

        def change(agents: dict[str, Any]) -> None:
            old = agents.get(name)
            made = msgspec.to_builtins(agent)
            del made["name"]
            agents[name] = {**(old if isinstance(old, dict) else {}), **made}

        self._change(change)
        return agent

    def remove(self, name: str) -> CatalogAgent:
        """Remove an agent, and return it; raises NotFound."""
        gone = self.get(name)
        self._change(lambda agents: agents.pop(name, None))
        return gone

    # -- the file -----------------------------------------------------------------------------

    def _agents(self) -> dict[str, Any]:
        file.check_inside(self.path, self._project)
        return file.agents(self.path)

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        make_private(self.path.parent)
        with _lock(self.path.parent):
            agents = self._agents()
            change(agents)
            text = file.read(self.path)
            catalog = json.loads(text) if text else {}
            made = json.dumps(
                {**catalog, "agents": dict(sorted(agents.items()))}, indent=2, ensure_ascii=False
            )
            if len(made.encode(errors="replace")) >= file.MAX_BYTES:
                raise InputError(f"{self.path} would have more than {file.MAX_BYTES} bytes")
            if made + "\n" == text:
                return
            try:
                mode = os.stat(self.path).st_mode & 0o777
            except OSError:
                mode = files.FILE
            file.replace(self.path, made + "\n", mode)
            files.sync(str(self.path.parent))


def _read_agent(name: str, given: Any) -> CatalogAgent | None:
    if not isinstance(given, dict):
        return None
    try:
        return msgspec.convert({"genus": "", **given, "name": name}, CatalogAgent)
    except msgspec.ValidationError:
        return None


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder against other processes; raises Busy when it is held for too long."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}") from None
    try:
        began = time.monotonic()
        while not files.try_lock(handle):
            if time.monotonic() - began >= WAIT_S:
                raise Busy(f"{folder} was locked by another process for too long")
            time.sleep(0.002)
        yield
    finally:
        os.close(handle)
