"""Verbs for the agents in the catalog of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dgent.errors import Busy, ConfigError, InputError, NotFound
from dgent.membrane.catalog import Catalog, CatalogAgent
from dgent.system.threads import in_thread
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, argument, option, verb

Folder = Annotated[str | None, option("the project; without it the one around here")]
AgentName = Annotated[str, argument("the agent's name")]


def _catalog(context: Context, folder: str | None) -> Catalog:
    project = context.settings.project if folder is None else Path(folder)
    if project is None:
        raise NotFound("there is no project around here", hint="`dgent init` makes one")
    if not project.is_dir():
        raise NotFound(f"there is no folder {project}", path=str(project))
    return Catalog(project)


class OneProject(Ask):
    """Input of `catalog.list`."""

    folder: Folder = None


class OneAgent(Ask):
    """Input of `catalog.get` and `catalog.remove`."""

    name: AgentName
    folder: Folder = None


class RegisterAgent(Ask):
    """Input of `catalog.register`."""

    name: AgentName
    genus: Annotated[str, argument("its kind, such as k-gent")]
    entry: Annotated[str, option("how it is started, such as package.module:main; never run by dgent")] = ""
    capability: Annotated[tuple[str, ...], option("what it can do; may be given more than once")] = ()
    folder: Folder = None


@verb("catalog.register", effect="write", errors=(InputError, NotFound, ConfigError, Busy), local=True)
async def register(context: Context, ask: RegisterAgent) -> CatalogAgent:
    """Put an agent into the project's catalog.json, in place of one with its name."""
    catalog = _catalog(context, ask.folder)
    return await in_thread(lambda _: catalog.register(ask.name, ask.genus, ask.entry, ask.capability))


@verb("catalog.get", effect="read", errors=(NotFound, ConfigError), local=True)
async def get(context: Context, ask: OneAgent) -> CatalogAgent:
    """Show an agent of the project's catalog.json."""
    return _catalog(context, ask.folder).get(ask.name)


@verb("catalog.list", effect="read", errors=(NotFound, ConfigError), local=True)
async def list_(context: Context, ask: OneProject) -> Items[CatalogAgent]:
    """List the agents of the project's catalog.json, by name."""
    return Items(_catalog(context, ask.folder).list())


@verb("catalog.remove", effect="write", errors=(NotFound, ConfigError, Busy), local=True)
async def remove(context: Context, ask: OneAgent) -> CatalogAgent:
    """Remove an agent from the project's catalog.json."""
    catalog = _catalog(context, ask.folder)
    return await in_thread(lambda _: catalog.remove(ask.name))
