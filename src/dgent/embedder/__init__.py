"""Embedders: what turns texts into vectors of their meaning.

`MiniLM` computes them here, from the files of a small model; `HTTPEmbedder` asks a server; `HashedEmbedder`
is for tests. Anything with a name, a dimension and `embed(texts)` is one. The names load when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.embedder.embedder import Embedder as Embedder
    from dgent.embedder.hashed import HashedEmbedder as HashedEmbedder
    from dgent.embedder.http import HTTPEmbedder as HTTPEmbedder
    from dgent.embedder.minilm import MiniLM as MiniLM

_HOME = {
    "Embedder": "dgent.embedder.embedder",
    "HTTPEmbedder": "dgent.embedder.http",
    "HashedEmbedder": "dgent.embedder.hashed",
    "MiniLM": "dgent.embedder.minilm",
}

__all__ = ["Embedder", "HTTPEmbedder", "HashedEmbedder", "MiniLM"]

__getattr__ = load_on_use(__name__, _HOME)
