"""A small server on loopback that speaks the OpenAI embeddings shape, and misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any], int], tuple[int, Any]]
"""Makes an answer of the request and its number: the status, and bytes or something for JSON."""


def embed(request: dict[str, Any], number: int) -> tuple[int, Any]:
    """Answer as a server should, the vectors in another order than the texts."""
    vectors = [
        {"index": at, "embedding": [float(len(text)), 1.0, 0.5]} for at, text in enumerate(request["input"])
    ]
    return 200, {"object": "list", "data": vectors[::-1], "model": request["model"]}


class Server:
    """A server, the requests it got, and its address."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer_headers: dict[str, str] = {}
        self.pause_s = 0.0
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                ours.requests.append(json.loads(raw) | {"path": self.path})
                ours.headers.append(dict(self.headers))
                time.sleep(ours.pause_s)
                status, body = answer(ours.requests[-1], len(ours.requests))
                sent = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in ours.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(answer: Answer = embed) -> Iterator[Server]:
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()
