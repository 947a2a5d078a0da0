"""A small language server for tests: it finds the word `bad`, and misbehaves as its argument says."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

HOW = sys.argv[1]


def send(message: dict[str, Any]) -> None:
    """Write a message."""
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Type: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


def read() -> dict[str, Any]:
    """Read a message."""
    size = 0
    while (line := sys.stdin.buffer.readline().strip()) != b"":
        size = int(line.split(b":")[1])
    if not size:
        sys.exit(0)
    found: dict[str, Any] = json.loads(sys.stdin.buffer.read(size))
    return found


def find(text: str) -> list[dict[str, Any]]:
    """Return a diagnostic for each line with the word."""
    return [
        {
            "range": {"start": {"line": at, "character": line.index("bad")}},
            "message": "bad word",
            "severity": 2,
        }
        for at, line in enumerate(text.split("\n"))
        if "bad" in line
    ]


def publish(uri: str, version: int, text: str) -> None:
    """Send diagnostics by itself: those of an older text first, then some of these, then all."""
    params: dict[str, Any] = {"uri": uri, "version": version - 1, "diagnostics": find("bad\n" * 9)}
    for changes in ({}, {"version": version, "diagnostics": []}, {"diagnostics": [*find(text), {"odd": 1}]}):
        params |= changes
        send({"method": "textDocument/publishDiagnostics", "params": params})


def main() -> None:
    """Serve."""
    text = ""
    if HOW == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        message = read()
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            if HOW == "silent":
                time.sleep(60)
            if HOW == "garbage":
                sys.stdout.write("hello\r\n\r\n")
                sys.stdout.flush()
            if HOW == "huge":
                sys.stdout.write("Content-Length: 99999999999\r\n\r\n")
                sys.stdout.flush()
            if HOW == "endless":
                while True:
                    sys.stdout.write("x" * 10_000)
            can: dict[str, Any] = {"diagnosticProvider": {}} if HOW == "pull" else {}
            send({"id": "a", "method": "workspace/configuration", "params": {"items": [{}, {}]}})
            send({"id": number, "result": {"capabilities": can}})
        elif method in ("textDocument/didOpen", "textDocument/didChange"):
            params = message["params"]
            document = params["textDocument"]
            text = document.get("text") or params["contentChanges"][0]["text"]
            if HOW == "dies":
                sys.exit(3)
            if HOW not in ("pull", "mute"):
                publish(document["uri"], document["version"], text)
        elif method == "textDocument/diagnostic":
            send({"id": number, "result": {"kind": "full", "items": find(text)}})
        elif method == "shutdown" and HOW != "stubborn":
            send({"id": number, "result": None})
        elif method == "exit" and HOW != "stubborn":
            sys.exit(0)


main()
