"""The session of a shell: each command of one shell in one project is an event of one session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dgent import clock
from dgent.membrane.membrane import Membrane
from dgent.membrane.project import project_hash
from dgent.membrane.record import CLISession
from dgent.membrane.session import CLISessionService
from dgent.system.files import is_alive
from dgent.universe.universe import Universe

MAX_OPEN = 200  # sessions of ended shells that are closed when a new one starts


class Shell(NamedTuple):
    """A shell of this machine: its process, when that started, and the boot; together they are unique."""

    pid: int
    started: str
    boot: str

    @property
    def key(self) -> str:
        """The shell as its sessions name it."""
        return f"{self.boot}/{self.pid}/{self.started}"


def find_shell(pid: int) -> Shell:
    """Return the shell with this process id."""
    return Shell(pid, _start_of(pid), clock.boot())


def _start_of(pid: int) -> str:
    """Return when a process started, as the system counts; empty where it does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_over(key: str) -> bool:
    """Return whether the shell of a session has ended."""
    boot, pid, started = [*key.rsplit("/", 2), "", ""][:3]
    if boot != clock.boot() or not pid.isdigit():
        return True
    return not is_alive(int(pid)) or _start_of(int(pid)) != started


async def log_command(
    universe: Universe, shell: Shell, project: Path | None, message: str, data: dict[str, Any]
) -> CLISession:
    """Log a command in the active session of its shell and project, which is started if there is none."""
    service = CLISessionService(universe)
    session = await find_session(universe, shell, project) or await _start(service, universe, shell, project)
    await service.log_event(session.id, "command", "dgent", message, data)
    return session


async def find_session(universe: Universe, shell: Shell, project: Path | None) -> CLISession | None:
    """Return the active session of a shell in a project."""
    wanted = None if project is None else project_hash(project)
    found = await _list_active(universe, shell)
    return next((each for each in found if each.project_hash == wanted), None)


async def _list_active(universe: Universe, shell: Shell) -> list[CLISession]:
    where: dict[str, Any] = {"metadata.shell": shell.key}
    return await Membrane(universe).list(CLISession, state="active", **where)


async def _start(
    service: CLISessionService, universe: Universe, shell: Shell, project: Path | None
) -> CLISession:
    """Start the session of a shell, and end those of shells that are gone."""
    for each in await Membrane(universe).list(CLISession, state="active", limit=MAX_OPEN):
        other = (each.metadata or {}).get("shell") if isinstance(each.metadata, dict) else None
        if isinstance(other, str) and other != shell.key and _is_over(other):
            await service.end_session(each.id)
    name = "shell" if project is None else f"shell in {project.name}"
    metadata = {"shell": shell.key, "pid": shell.pid}
    return await service.start_session("interactive", name, project_path=project, metadata=metadata)


async def resume_in_shell(universe: Universe, session_id: str, shell: Shell) -> CLISession:
    """Go on with a session in a shell: its commands are logged there from now on."""
    service, membrane = CLISessionService(universe), Membrane(universe)
    session = await service.resume(session_id)
    for each in await _list_active(universe, shell):
        if each.id != session.id and each.project_hash == session.project_hash:
            await service.end_session(each.id, state="interrupted")

    def work(found: CLISession) -> list[CLISession]:
        return [replace(found, metadata={**(found.metadata or {}), "shell": shell.key, "pid": shell.pid})]

    changed = await membrane.change(CLISession, session_id, work)
    assert changed is not None
    return changed
