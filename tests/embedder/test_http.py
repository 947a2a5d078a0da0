"""An embedder behind HTTP, against a real server on loopback."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dgent.embedder import HTTPEmbedder
from dgent.embedder.named import make_embedder
from dgent.errors import ConfigError, EmbedderFailed, EmbedderRefused, InputError
from tests.embedder.server import embed, serving


def test_texts_come_back_as_vectors_in_their_order() -> None:
    with serving() as server:
        embedder = HTTPEmbedder(server.url, "small", dim=3)
        assert embedder.embed(["a", "bbb"]) == [[1.0, 1.0, 0.5], [3.0, 1.0, 0.5]]
    assert server.requests == [
        {"model": "small", "input": ["a", "bbb"], "encoding_format": "float", "path": "/v1/embeddings"}
    ]
    assert (embedder.name, embedder.dim) == ("small", 3)


def test_many_texts_are_many_requests_and_long_ones_are_cut() -> None:
    with serving() as server:
        embedder = HTTPEmbedder(server.url + "/embeddings/", "small", batch=4, max_chars=5)
        found = embedder.embed([str(number) * number for number in range(10)])
    assert [vector[0] for vector in found] == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5]
    assert [len(request["input"]) for request in server.requests] == [4, 4, 2]
    assert {request["path"] for request in server.requests} == {"/v1/embeddings"}


def test_nothing_is_asked_for_no_texts() -> None:
    with serving() as server:
        assert HTTPEmbedder(server.url, "small").embed([]) == []
    assert server.requests == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status: int) -> None:
    with serving(lambda request, n: (status, b"busy") if n < 3 else embed(request, n)) as server:
        assert len(HTTPEmbedder(server.url, "small").embed(["a"])) == 1
    assert len(server.requests) == 3


def test_a_server_says_how_long_to_wait() -> None:
    with serving(lambda request, n: (429, b"") if n < 2 else embed(request, n)) as server:
        server.answer_headers = {"Retry-After": "1"}
        began = time.monotonic()
        HTTPEmbedder(server.url, "small").embed(["a"])
    assert time.monotonic() - began >= 1


def test_a_server_that_stays_busy_is_given_up() -> None:
    with (
        serving(lambda request, n: (503, b"try\x1b[31m later")) as server,
        pytest.raises(EmbedderFailed, match=r"answered 503: try \[31m later") as raised,
    ):
        HTTPEmbedder(server.url, "small", attempts=2).embed(["a"])
    assert len(server.requests) == 2 and raised.value.retryable


@pytest.mark.parametrize("status", [301, 400, 401, 404])
def test_what_will_not_change_is_not_asked_again(status: int) -> None:
    with (
        serving(lambda request, n: (status, {"error": {"message": "no such model"}})) as server,
        pytest.raises(EmbedderRefused, match="no such model") as raised,
    ):
        server.answer_headers = {"Location": "http://127.0.0.1:1/"}
        HTTPEmbedder(server.url, "small").embed(["a"])
    assert len(server.requests) == 1 and not raised.value.retryable


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "did not answer as"),
        (b"<html>", "did not answer as"),
        (b"\xff", "did not answer as"),
        ({"data": []}, "0 vectors for 2 texts"),
        ({"data": [{"index": 0, "embedding": [1.0]}]}, "1 vectors for 2 texts"),
        ({"data": [{"index": 0, "embedding": [1.0]}] * 2}, "2 vectors for 2 texts"),
        ({"data": [{"index": at, "embedding": [1.0]} for at in (1, 2)]}, "2 vectors for 2 texts"),
        ({"data": [{"index": at, "embedding": [1.0] * at} for at in (0, 1)]}, "vectors of"),
        ({"data": [{"index": at, "embedding": [1.0] * 4} for at in (0, 1)]}, r"of \[4\] numbers, not 3"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}]}', "did not answer as"),
        ({"data": [{"index": 0, "embedding": "AAAA"}]}, "did not answer as"),
    ],
)
def test_nonsense_is_refused(body: Any, reason: str) -> None:
    with serving(lambda request, n: (200, body)) as server, pytest.raises(EmbedderFailed, match=reason):
        HTTPEmbedder(server.url, "small", dim=3).embed(["a", "b"])


def test_a_slow_server_is_not_waited_for() -> None:
    with serving() as server, pytest.raises(EmbedderFailed, match="timed out"):
        server.pause_s = 0.5
        HTTPEmbedder(server.url, "small", timeout_s=0.1, attempts=1).embed(["a"])


def test_a_server_that_is_not_there() -> None:
    with serving() as server:
        pass
    with pytest.raises(EmbedderFailed, match="cannot be reached"):
        HTTPEmbedder(server.url, "small", attempts=1).embed(["a"])


def test_the_key_is_sent_and_never_shown() -> None:
    key = "sk-very-secret"
    with (
        serving(lambda request, n: (401, {"error": f"wrong key {key}"})) as server,
        pytest.raises(EmbedderRefused, match=r"wrong key \*\*\*") as raised,
    ):
        embedder = HTTPEmbedder(server.url, "small", api_key=key)
        embedder.embed(["a"])
    assert server.headers[0]["Authorization"] == f"Bearer {key}"
    assert key not in f"{embedder!r} {embedder.name} {raised.value}" + json.dumps(raised.value.details)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "x",
        "http://ann:pass@host/v1",
        "http://host/v1?key=1",
        "http://host/v1#a",
        "http://ho st/v1",
        "http://host:port/v1",
        "http://host/v1\r\nX: y",
        "http://[::1/v1",
        5,
    ],
)
def test_odd_urls_are_refused(url: Any) -> None:
    with pytest.raises(InputError) as raised:
        HTTPEmbedder(url, "small")
    assert "pass" not in str(raised.value).replace("password", "")


@pytest.mark.parametrize(
    "wrong",
    [{"model": ""}, {"batch": 0}, {"attempts": 0}, {"timeout_s": 0}, {"api_key": "a\nb"}, {"api_key": "ä"}],
)
def test_odd_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        HTTPEmbedder(**{"url": "http://127.0.0.1", "model": "small"} | wrong)
    assert raised.value.details["field"] in wrong


def test_settings_name_a_server() -> None:
    with serving() as server:
        embedder = make_embedder(server.url, "small", "key")
        assert isinstance(embedder, HTTPEmbedder) and embedder.embed(["a"])
    assert make_embedder("none") is None
    with pytest.raises(ConfigError, match="no model"):
        make_embedder("http://127.0.0.1")
    with pytest.raises(InputError, match="not a valid embedder"):
        make_embedder("openai")
