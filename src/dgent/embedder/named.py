"""Embedders by name, as settings have them: `minilm`, `hashed`, or the URL of a server."""

from __future__ import annotations

from pathlib import Path

from dgent.embedder.embedder import Embedder
from dgent.errors import ConfigError, InputError

NAMES = ("none", "minilm", "hashed")


def make_embedder(
    name: str, model: str | None = None, key: str | None = None, data: Path | None = None
) -> Embedder | None:
    """Return the embedder of a name or URL; None for `none`. `data` is the user's data folder.

    Nothing is read or asked yet, so that a model that is missing stops no other work.
    """
    if name == "none":
        return None
    if name == "hashed":
        from dgent.embedder.hashed import HashedEmbedder

        return HashedEmbedder()
    if name == "minilm":
        from dgent.embedder.minilm import MiniLM, model_folder

        return MiniLM(None if data is None else model_folder(data))
    if not name.startswith(("http://", "https://")):
        raise InputError(
            f"{name!r} is not a valid embedder", hint=f"use {', '.join(NAMES)} or a URL", field="embedder"
        )
    if not model:
        raise ConfigError(
            "the embedder is a server, and no model is set", hint="set embedder_model, or use HTTPEmbedder"
        )
    from dgent.embedder.http import HTTPEmbedder

    return HTTPEmbedder(name, model, api_key=key)


def find_embedder() -> Embedder | None:
    """Return the embedder of the user's settings."""
    from dgent.config.settings import default_embedder  # the only reader of home and environment

    return make_embedder(*default_embedder())
