"""all-MiniLM-L6-v2 in plain numpy: a small model that turns a sentence into 384 numbers, without a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from dgent.embedder.embedder import load_numpy
from dgent.embedder.safetensors import read_arrays
from dgent.embedder.wordpiece import WordPiece, read_wordpiece
from dgent.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "all-MiniLM-L6-v2"
WEIGHTS, PIECES = "model.safetensors", "vocab.txt"
HEADS = 12
MAX_TOKENS = 256  # of a text; the rest is left out, as the model was trained
BATCH_TOKENS = 1_024  # of texts that are computed at once
_GELU_ROWS = 64  # so many fit into the cache of a processor
_EPSILON = 1e-12


class MiniLM:
    """The model from its files, which `dgent embed install` puts into the user's data folder."""

    name = NAME
    dim = 384

    def __init__(self, folder: str | Path | None = None) -> None:
        if folder is None:
            from dgent.config.places import find_places

            folder = model_folder(find_places().data)
        self.folder = Path(folder)
        self._lock = Lock()
        self._model: Model | None = None

    def __repr__(self) -> str:
        return f"MiniLM({str(self.folder)!r})"

    @property
    def installed(self) -> bool:
        """True if the files are there."""
        return all((self.folder / name).is_file() for name in (WEIGHTS, PIECES))

    def embed(self, texts: Sequence[str], /) -> NDArray[Any]:
        """Return one vector of length 1 for each text; the first call reads the model."""
        with self._lock:
            if self._model is None:
                self._model = read_model(self.folder)
        return self._model.embed(texts)


def model_folder(data: Path) -> Path:
    """Return the folder of the model below the user's data folder."""
    return data / "models" / NAME


def read_model(folder: Path, heads: int = HEADS) -> Model:
    """Return the model in a folder; NotFound when it is not installed."""
    try:
        arrays, pieces = read_arrays(folder / WEIGHTS), read_wordpiece(folder / PIECES, MAX_TOKENS)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"the files of {NAME} are not in {folder}", hint="run `dgent embed install`") from None
    try:
        return Model(arrays, pieces, heads)
    except (KeyError, ValueError) as error:
        raise Corrupt(f"{folder / WEIGHTS} is not a model of this kind: {error}") from None


class _Layer:
    """The arrays of one layer; query, key and value as one matrix."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], number: int) -> None:
        numpy = load_numpy()

        def read(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
            found = f"encoder.layer.{number}.{name}"
            return arrays[f"{found}.weight"], arrays[f"{found}.bias"]

        parts = [read(f"attention.self.{each}") for each in ("query", "key", "value")]
        self.attend = numpy.concatenate([part[0] for part in parts]), numpy.concatenate([p[1] for p in parts])
        self.join = read("attention.output.dense")
        self.join_norm = read("attention.output.LayerNorm")
        self.widen = read("intermediate.dense")
        self.narrow = read("output.dense")
        self.narrow_norm = read("output.LayerNorm")


class Model:
    """A BERT encoder whose last states are averaged over the tokens of a text and scaled to length 1."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], pieces: WordPiece, heads: int) -> None:
        self._numpy = load_numpy()
        self._pieces, self._heads = pieces, heads
        self._words = arrays["embeddings.word_embeddings.weight"]
        # Every text is one sentence, so all tokens are of the first type.
        self._places = (
            arrays["embeddings.position_embeddings.weight"][:MAX_TOKENS]
            + arrays["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = arrays["embeddings.LayerNorm.weight"], arrays["embeddings.LayerNorm.bias"]
        count = 0
        while f"encoder.layer.{count}.output.dense.weight" in arrays:
            count += 1
        self._layers = [_Layer(arrays, number) for number in range(count)]
        self.dim = int(self._words.shape[1])
        if self.dim % heads:
            raise ValueError(f"{self.dim} numbers cannot be split among {heads} heads")

    def embed(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return one vector for each text, in the same order."""
        vectors: NDArray[Any] = self._numpy.zeros((len(texts), self.dim), self._numpy.float32)
        done = 0
        for some in _batches(self._pieces.encode(text) for text in texts):
            vectors[done : done + len(some)] = self._run(some)
            done += len(some)
        return vectors

    def _run(self, tokens: Sequence[Sequence[int]]) -> NDArray[Any]:
        """Return the vectors of some texts, whose tokens are computed one after another without padding."""
        numpy = self._numpy
        ends = numpy.cumsum([len(some) for some in tokens])
        parts = [slice(end - len(some), end) for some, end in zip(tokens, ends, strict=True)]
        places = numpy.concatenate([self._places[: len(some)] for some in tokens])
        states = self._normalize(self._words[numpy.concatenate(tokens)] + places, self._norm)
        for layer in self._layers:
            states = self._normalize(states + self._attend(states, layer, parts), layer.join_norm)
            wide = _apply(states, layer.widen)
            for at in range(0, len(wide), _GELU_ROWS):
                wide[at : at + _GELU_ROWS] = self._gelu(wide[at : at + _GELU_ROWS])
            states = self._normalize(states + _apply(wide, layer.narrow), layer.narrow_norm)
        means = numpy.stack([states[part].mean(axis=0) for part in parts])
        sizes = numpy.sqrt((means * means).sum(axis=1, keepdims=True))
        vectors: NDArray[Any] = means / numpy.maximum(sizes, _EPSILON)
        return vectors

    def _attend(self, states: NDArray[Any], layer: _Layer, parts: Sequence[slice]) -> NDArray[Any]:
        """Return what each token takes from the others of its text."""
        numpy = self._numpy
        count, dim = states.shape
        joint = _apply(states, layer.attend).reshape(count, 3, self._heads, dim // self._heads)
        mixed = numpy.empty((count, self._heads, dim // self._heads), numpy.float32)
        scale = numpy.float32((dim // self._heads) ** -0.5)
        for part in parts:
            query, key, value = joint[part].transpose(1, 2, 0, 3)
            weights = query @ key.swapaxes(-1, -2) * scale
            weights = numpy.exp(weights - weights.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            mixed[part] = (weights @ value).transpose(1, 0, 2)
        return _apply(mixed.reshape(count, dim), layer.join)

    def _normalize(self, states: NDArray[Any], norm: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
        centred = states - states.mean(axis=-1, keepdims=True)
        spread = (centred * centred).mean(axis=-1, keepdims=True)
        found: NDArray[Any] = centred / self._numpy.sqrt(spread + _EPSILON) * norm[0] + norm[1]
        return found

    def _gelu(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return x times the share of a normal distribution below it.

        numpy has no error function: this is the approximation 7.1.26 of Abramowitz and Stegun, right to
        about one part in a million of the result.
        """
        numpy = self._numpy
        size = numpy.abs(x) * numpy.float32(0.5**0.5)
        t = 1.0 / (1.0 + numpy.float32(0.3275911) * size)
        sum_ = numpy.float32(1.061405429)
        for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            sum_ = sum_ * t + numpy.float32(factor)
        half = numpy.float32(0.5) * sum_ * t * numpy.exp(-size * size)  # the share beyond |x|
        found: NDArray[Any] = x * numpy.where(x < 0, half, 1.0 - half)
        return found


def _apply(states: NDArray[Any], dense: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
    found: NDArray[Any] = states @ dense[0].T + dense[1]
    return found


def _batches(texts: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    """Yield texts that are computed at once: not too many tokens, so that memory is bounded."""
    some: list[list[int]] = []
    size = 0
    for tokens in texts:
        if some and size + len(tokens) > BATCH_TOKENS:
            yield some
            some, size = [], 0
        some.append(tokens)
        size += len(tokens)
    if some:
        yield some
