"""An embedder behind HTTP that speaks the OpenAI shape, as Ollama, vLLM, llama.cpp and OpenAI do."""

from __future__ import annotations

import http.client
import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dgent.errors import EmbedderFailed, EmbedderRefused, InputError

MAX_ANSWER_BYTES = 128 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_SHOWN = 200  # characters of a server's own words in an error
_AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504))


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


_answer = msgspec.json.Decoder(_Answer)


class HTTPEmbedder:
    """Asks a server for vectors: `HTTPEmbedder("http://127.0.0.1:11434/v1", "nomic-embed-text")`.

    It asks for at most `batch` texts at once, each cut to `max_chars`, tries `attempts` times with growing
    pauses, and follows no redirects. The key is sent to this server alone; nothing stores or shows it.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dim: int = 0,
        api_key: str | None = None,
        name: str | None = None,
        timeout_s: float = 60.0,
        attempts: int = 4,
        batch: int = 64,
        max_chars: int = 8_000,
    ) -> None:
        self.url, self.model = _check_url(url), model
        if not isinstance(model, str) or not model:
            raise InputError("an embedder behind HTTP needs the name of a model", field="model")
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise InputError("the key of an embedder has only visible ASCII characters", field="api_key")
        for field, value in (("attempts", attempts), ("batch", batch), ("max_chars", max_chars)):
            if type(value) is not int or value < 1:
                raise InputError(f"{field} is {value!r}", hint="a whole number from 1", field=field)
        if not 0 < timeout_s < 86_400:
            raise InputError(f"timeout_s is {timeout_s!r}", hint="seconds, more than 0", field="timeout_s")
        self.name, self.dim = name or model, dim
        self.timeout_s, self.attempts, self.batch, self.max_chars = timeout_s, attempts, batch, max_chars
        self._api_key = api_key

    def __repr__(self) -> str:
        return f"HTTPEmbedder({self.url!r}, {self.model!r})"

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return one vector for each text; raises EmbedderFailed, or EmbedderRefused if that is final."""
        found: list[list[float]] = []
        for at in range(0, len(texts), self.batch):
            some = [text[: self.max_chars] for text in texts[at : at + self.batch]]
            found += self._read(self._ask(some), len(some))
        return found

    def _ask(self, texts: Sequence[str]) -> bytes:
        body = msgspec.json.encode({"model": self.model, "input": texts, "encoding_format": "float"})
        pauses = _pauses()
        for attempt in range(1, self.attempts + 1):
            wanted_s = 0.0
            try:
                status, after, answer = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                failure = EmbedderFailed(f"{self.url} cannot be reached: {_name_error(error)}")
            else:
                if status == 200:
                    return answer
                message = f"{self.url} answered {status}{self._quote(answer)}"
                if status not in _AGAIN:
                    raise EmbedderRefused(message, hint=_hint(status), status=status)
                failure, wanted_s = EmbedderFailed(message, status=status), after
            if attempt < self.attempts:
                time.sleep(min(max(next(pauses), wanted_s), _LONGEST_PAUSE_S))
        raise failure

    def _post(self, body: bytes) -> tuple[int, float, bytes]:
        """Return the status, the seconds that the server wants us to wait, and the answer."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.timeout_s)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            connection.request("POST", parts.path, body, headers)
            answer = connection.getresponse()
            raw = self._read_all(answer)
            after = answer.getheader("Retry-After") or ""
            return answer.status, float(after) if after.isdecimal() and len(after) < 9 else 0.0, raw
        finally:
            connection.close()

    def _read_all(self, answer: http.client.HTTPResponse) -> bytes:
        """Read an answer within the limits of size and time: a server may send a byte now and then."""
        until = time.monotonic() + self.timeout_s
        chunks, size = [], 0
        while chunk := answer.read1(1 << 16):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise EmbedderRefused(f"{self.url} sent more than {MAX_ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise TimeoutError("the answer took too long")
            chunks.append(chunk)
        return b"".join(chunks)

    def _read(self, raw: bytes, count: int) -> list[list[float]]:
        try:
            items = _answer.decode(raw).data
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EmbedderFailed(f"{self.url} did not answer as an embeddings server does: {error}") from None
        by_index = {item.index: item.embedding for item in items}
        if len(items) != count or by_index.keys() != set(range(count)):
            raise EmbedderFailed(f"{self.url} returned {len(items)} vectors for {count} texts")
        dims = {len(vector) for vector in by_index.values()}
        if len(dims) > 1 or (self.dim and dims != {self.dim}):
            raise EmbedderFailed(f"{self.url} returned vectors of {sorted(dims)} numbers, not {self.dim}")
        return [by_index[number] for number in range(count)]

    def _quote(self, answer: bytes) -> str:
        """Return the beginning of a server's own words, without the key if it repeats that."""
        text = answer[: 8 * _SHOWN].decode(errors="replace")
        if self._api_key is not None:
            text = text.replace(self._api_key, "***")
        shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN]
        return f": {shown}" if shown else ""


def _check_url(url: object) -> str:
    """Return the address that is asked: that of the embeddings below a base such as `https://host/v1`."""
    if not isinstance(url, str):
        raise InputError(f"a URL is text, not {type(url).__name__}", field="url")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError("the URL of the embedder cannot be read", field="url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InputError(
            "the URL of an embedder begins with http:// or https:// and a host",
            hint="for example http://127.0.0.1:11434/v1",
            field="url",
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise InputError(
            "the URL of an embedder has no user, password, ? or #", hint="give a key as api_key", field="url"
        )
    if not re.fullmatch(r"[\x21-\x7e]+", url):
        raise InputError("the URL of an embedder has only visible ASCII characters", field="url")
    path = parts.path.rstrip("/")
    path = path if path.endswith("/embeddings") else f"{path}/embeddings"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * (0.5 + random.random())  # so that many clients do not come back at once
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _hint(status: int) -> str:
    if status in (401, 403):
        return "check the key of the embedder"
    return "check the URL and the name of the model" if status in (404, 405) else ""


def _name_error(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
