"""The verb that gives a project a store of its own, found from every folder below."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from dgent.config import file
from dgent.config import settings as config
from dgent.config.places import home_folder
from dgent.config.url import resolve_url
from dgent.errors import Conflict, InputError, NotFound, Unsupported
from dgent.store.jsonl.git import find_repository, set_up_git
from dgent.system.threads import in_thread
from dgent.universe.universe import open as open_universe
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, option, verb

LINES, DATABASE = "jsonl:.dgent/data", "sqlite:///.dgent/memory.db"
IGNORED = "memory.db*\nconfig.toml.*\n"


class InitProject(Ask):
    """Input of `store.init`."""

    folder: Annotated[
        str | None,
        argument("the project; without it the git repository around here, or this folder", complete="file"),
    ] = None
    git: Annotated[
        bool,
        option(
            "keep the data as text files that git shares and merges",
            prompt="Keep the data as text files, committed and merged with git? Else it is a private file",
        ),
    ] = False


class ProjectStore(msgspec.Struct, frozen=True):
    """The store of a project; `driver` is the command by which git merges it, if git does."""

    folder: str
    url: str
    place: str
    driver: str | None
    changed: bool


@verb(
    "store.init", effect="write", errors=(InputError, NotFound, Conflict, Unsupported), local=True, makes=True
)
async def init(context: Context, ask: InitProject) -> ProjectStore:
    """Give this project a store of its own, found from every folder below it."""
    folder = _find_folder(ask)
    known = _find_url(folder)
    url = known or (LINES if ask.git else DATABASE)
    if ask.git and url != LINES:
        hint = f"`dgent store copy {LINES}` copies it, then change url in .dgent/config.toml"
        raise Conflict(f"the project {folder} keeps its data in {url} already", hint=hint)
    if url == LINES and find_repository(str(folder)) is None:
        raise NotFound(
            f"{folder} is not in a git repository", hint="run `git init` first, or leave out --git"
        )
    if known is None:
        config.write_setting(folder / ".dgent" / "config.toml", "url", url, project=folder)
    _ignore_private(folder / ".dgent" / ".gitignore")
    whole = resolve_url(url, folder, inside=True)
    place = whole.removeprefix("sqlite:///").removeprefix("jsonl:")
    driver, changed = None, known is None or not os.path.exists(place)
    async with open_universe(whole) as u:
        await u.seq()
    if url == LINES:
        done = await in_thread(lambda _: set_up_git(place))
        driver, changed = done.driver, changed or done.changed
    return ProjectStore(str(folder), url, place, driver, changed)


def _find_folder(ask: InitProject) -> Path:
    """Return the folder of the project; raises InputError where settings would not look for one."""
    start = Path(os.path.abspath(ask.folder or os.getcwd()))
    if not start.is_dir():
        raise NotFound(f"there is no folder {start}", hint="make it first", path=str(start))
    folder = start if ask.folder else Path(find_repository(str(start)) or start)
    home = home_folder(None)
    if home is not None and folder in (home, *home.parents):
        hint = "make a folder for the project; without one `dgent remember something` uses your own store"
        raise InputError(f"{folder} is your home folder or above it, which cannot be a project", hint=hint)
    return folder


def _find_url(folder: Path) -> str | None:
    """Return the URL in the project's settings file, as written there; None if there is none."""
    found = file.table(folder / ".dgent" / "config.toml").get("url")
    return found if isinstance(found, str) else None


def _ignore_private(path: Path) -> None:
    """Keep the private files of a project out of git, whatever else the file says."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = [line for line in IGNORED.splitlines() if line not in text.splitlines()]
    if missing:
        start = text + ("\n" if text and not text.endswith("\n") else "")
        path.write_text(start + "\n".join(missing) + "\n", encoding="utf-8")
