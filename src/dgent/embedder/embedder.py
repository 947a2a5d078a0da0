"""The protocol of an embedder, and one call of it: beside the event loop, bounded, and checked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from dgent.errors import EmbedderFailed, InputError, Unsupported
from dgent.system.threads import in_daemon_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

Vectors: TypeAlias = "Sequence[Sequence[float]] | NDArray[Any]"
"""One vector for each text, in the same order: rows of a numpy array, or plain lists of numbers."""

MAX_DIM = 8_192
MAX_NAME_BYTES = 200
MOST_CALLS = 4  # so many calls that have not returned are waited for; then further ones fail at once


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; near vectors mean similar texts.

    `name` says which model it is: only vectors under the same name and dimension are compared. `dim` is 0
    while it is not known before the first answer. `embed` may be `async`; otherwise it runs on a thread.
    """

    @property
    def name(self) -> str:
        """The name of the model."""
        ...

    @property
    def dim(self) -> int:
        """The number of numbers in a vector; 0 if only an answer will tell."""
        ...

    def embed(self, texts: Sequence[str], /) -> Vectors | Awaitable[Vectors]:
        """Return one vector for each text, in the same order."""
        ...


class EmbedderCalls:
    """The calls of one embedder: each has a time limit, and its answer is checked before anyone sees it."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = check_embedder(embedder)
        self.name = embedder.name
        self._running = 0
        self._lock = Lock()

    async def embed(self, texts: Sequence[str], timeout_s: float, dim: int = 0) -> NDArray[Any]:
        """Return the vectors of texts as rows of 32-bit floats, each of `dim` numbers unless that is 0.

        Raises EmbedderFailed when the embedder raises, takes too long, or answers nonsense.
        """
        if self._running >= MOST_CALLS:
            raise EmbedderFailed(f"{self._running} calls of the embedder {self.name!r} have not returned yet")
        call = asyncio.ensure_future(self._call(list(texts)))
        call.add_done_callback(_take_error)
        try:
            done, _ = await asyncio.wait([call], timeout=timeout_s)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not done:
            call.cancel()
            raise EmbedderFailed(f"the embedder {self.name!r} did not answer within {timeout_s:g} s")
        try:
            found = call.result()
        except EmbedderFailed:
            raise
        except Exception as error:
            # Of its own code: whatever it is, writes and searches by words go on.
            raise EmbedderFailed(
                f"the embedder {self.name!r} raised {type(error).__name__}: {str(error)[:300]}"
            ) from error
        return check_vectors(self.name, found, len(texts), dim or self.embedder.dim)

    async def _call(self, texts: Sequence[str]) -> Any:
        embed = self.embedder.embed
        if inspect.iscoroutinefunction(embed):
            with self._count_call():
                return await embed(texts)

        def call() -> Any:
            try:
                with self._count_call():
                    return embed(texts)
            except (GeneratorExit, KeyboardInterrupt, SystemExit) as error:
                # Handed on to the loop, it would end the program.
                raise EmbedderFailed(f"the embedder {self.name!r} raised {type(error).__name__}") from None

        found: Any = await in_daemon_thread(call)
        return await found if inspect.isawaitable(found) else found

    @contextmanager
    def _count_call(self) -> Iterator[None]:
        """Count a call until it returns, on whatever thread and however long after its caller is gone."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1


def _take_error(call: asyncio.Future[Any]) -> None:
    if not call.cancelled():
        call.exception()  # nobody may be left to look at it


def check_embedder(embedder: object) -> Embedder:
    """Return an embedder if it has what one needs; InputError says what is missing."""
    name, dim = getattr(embedder, "name", None), getattr(embedder, "dim", None)
    if not isinstance(name, str) or not callable(getattr(embedder, "embed", None)):
        raise InputError(
            f"{type(embedder).__name__} is not an embedder",
            hint="it needs a name, a dim and embed(texts)",
            field="embedder",
        )
    if not 1 <= len(name.encode(errors="replace")) <= MAX_NAME_BYTES or not name.isprintable():
        raise InputError(
            f"the name of an embedder has 1 to {MAX_NAME_BYTES} printable bytes, not {name[:50]!r}",
            field="embedder",
        )
    if type(dim) is not int or not 0 <= dim <= MAX_DIM:
        raise InputError(
            f"the dim of the embedder {name!r} is {dim!r}",
            hint=f"a whole number up to {MAX_DIM}; 0 if only an answer tells",
            field="embedder",
        )
    found: Embedder = embedder  # type: ignore[assignment]  # checked above
    return found


def check_vectors(name: str, found: Any, count: int, dim: int) -> NDArray[Any]:
    """Return an embedder's answer as rows of 32-bit floats; EmbedderFailed says what is wrong with it."""
    numpy = load_numpy()
    try:
        with numpy.errstate(over="ignore"):
            vectors: NDArray[Any] = numpy.asarray(found, dtype=numpy.float32)
    except (TypeError, ValueError, OverflowError):
        raise EmbedderFailed(
            f"the embedder {name!r} did not return a vector of numbers for each text"
        ) from None
    if vectors.ndim != 2 or len(vectors) != count:
        rows = len(vectors) if vectors.ndim else 0
        raise EmbedderFailed(f"the embedder {name!r} returned {rows} vectors for {count} texts")
    if vectors.shape[1] != (dim or vectors.shape[1]) or not 1 <= vectors.shape[1] <= MAX_DIM:
        raise EmbedderFailed(
            f"the embedder {name!r} returned vectors of {vectors.shape[1]} numbers, not {dim or MAX_DIM}"
        )
    if not numpy.isfinite(vectors).all():
        raise EmbedderFailed(f"the embedder {name!r} returned numbers that are not finite")
    return vectors


def load_numpy() -> Any:
    """Return numpy, which only those load who use vectors."""
    try:
        import numpy
    except ModuleNotFoundError:
        raise Unsupported("vectors need numpy", hint="pip install 'dgent[embed]'") from None
    return numpy
