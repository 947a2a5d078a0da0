"""A client of language servers over standard input and output: start one, open a file, read diagnostics.

It speaks the part of the Language Server Protocol that diagnostics need. Every wait has an end, messages are
bounded, and the server's process group ends with the client.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from dgent.config.command import command_environment
from dgent.errors import InputError, Unavailable
from dgent.runtime.code.workspace import Workspace
from dgent.system.process import close_pipes

MAX_BYTES = 16 * 1024 * 1024  # of one message
MAX_HEADER = 4_096
MAX_MESSAGE = 1_000  # characters of one
START_S = 30.0
WAIT_S = 15.0  # for the diagnostics of a file
QUIET_S = 0.4  # after which pushed diagnostics count as complete
END_S = 2.0
SEVERITY = ("error", "warning", "information", "hint")


class Diagnostic(msgspec.Struct, frozen=True, order=True):
    """One finding of a language server; lines and columns begin at 1."""

    line: int
    column: int
    severity: str
    message: str
    source: str = ""
    code: str = ""


class LanguageServer:
    """A language server for a workspace: `async with LanguageServer(["pylsp"], workspace) as server`."""

    def __init__(
        self, command: Sequence[str], workspace: Workspace, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.workspace = workspace
        self._environment = command_environment(environment)
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._pushed: dict[str, list[Any]] = {}
        self._news = asyncio.Event()
        self._versions: dict[str, int] = {}
        self._pulls = False
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Future[None] | None = None
        self._problem = ""

    async def __aenter__(self) -> LanguageServer:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self, timeout: float = START_S) -> None:
        """Start the server and agree on what it can do; Unavailable if it does not answer in time."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                cwd=self.workspace.root,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"the language server {self.command[:1]} cannot be started: {error}", hint="is it installed?"
            ) from None
        self._reading = asyncio.ensure_future(self._read())
        root = self.workspace.root.as_uri()
        text = {"synchronization": {}, "publishDiagnostics": {"versionSupport": True}, "diagnostic": {}}
        try:
            found = await self.request(
                "initialize",
                {
                    "processId": os.getpid(),
                    "rootUri": root,
                    "workspaceFolders": [{"uri": root, "name": self.workspace.root.name}],
                    "capabilities": {"textDocument": text, "workspace": {"configuration": True}},
                },
                timeout,
            )
            can = found.get("capabilities", {}) if isinstance(found, dict) else {}
            self._pulls = isinstance(can, dict) and can.get("diagnosticProvider") not in (None, False)
            await self._send({"method": "initialized", "params": {}})
        except BaseException:
            await self.close()
            raise

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.returncode is None and not self._problem

    async def diagnose(self, name: str, timeout: float = WAIT_S, text: str | None = None) -> list[Diagnostic]:
        """Return the diagnostics of a file as it is on the disk, or with another text, as editors have one.

        Unavailable if none come in time.
        """
        if text is None:
            text = (await asyncio.to_thread(self.workspace.read_text, name)).text
        uri = (self.workspace.root / name).as_uri()
        version = self._versions.get(uri, 0) + 1
        self._versions[uri] = version
        self._pushed.pop(uri, None)
        document: dict[str, Any] = {"uri": uri, "version": version}
        if version == 1:
            document |= {"languageId": find_language(name), "text": text}
            await self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        else:
            params = {"textDocument": document, "contentChanges": [{"text": text}]}
            await self._send({"method": "textDocument/didChange", "params": params})
        if self._pulls:
            asked = {"textDocument": {"uri": uri}}
            found = await self.request("textDocument/diagnostic", asked, timeout)
            return _diagnostics(found.get("items") if isinstance(found, dict) else [])
        return _diagnostics(await self._wait_pushed(uri, timeout))

    async def _wait_pushed(self, uri: str, timeout: float) -> list[Any]:
        """Wait for diagnostics that the server sends by itself, until it is quiet for a moment."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._check_running()
            left = deadline - loop.time()
            if left <= 0:
                if uri in self._pushed:
                    return self._pushed[uri]
                raise Unavailable(f"the language server sent no diagnostics within {timeout:g} s")
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(left, QUIET_S) if uri in self._pushed else left)
            except TimeoutError:
                if uri in self._pushed:
                    return self._pushed[uri]

    async def request(self, method: str, params: Any, timeout: float = WAIT_S) -> Any:
        """Send a request and return its result; Unavailable if the server fails, ends or is too slow."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise Unavailable(f"the language server did not answer {method} within {timeout:g} s") from None
        finally:
            self._answers.pop(number, None)

    async def close(self) -> None:
        """End the server: politely, then with its process group."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.returncode is None and not self._problem:
                self._process = process
                with suppress(Unavailable):
                    await self.request("shutdown", None, END_S)
                    await self._send({"method": "exit"})
                    await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            pass
        finally:
            self._process = None
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            with suppress(TimeoutError):  # one that left the group may have the pipe open
                await asyncio.wait_for(process.wait(), END_S)
            close_pipes(process)

    # -- the wire ---------------------------------------------------------------------------

    def _check_running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._problem:
            raise Unavailable(self._problem or "the language server is not running", hint="start it again")
        return self._process

    async def _send(self, message: dict[str, Any]) -> None:
        process = self._check_running()
        assert process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            # A server that reads nothing would hold us here for ever.
            await asyncio.wait_for(process.stdin.drain(), WAIT_S)
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"the language server takes no messages: {error}") from None

    async def _read(self) -> None:
        problem = "the language server ended"
        try:
            while (message := await self._receive()) is not None:
                await self._handle(message)
        except (Unavailable, InputError) as error:
            problem = error.message
        except (ValueError, OSError, EOFError, RecursionError) as error:
            problem = f"the language server sent what is not its protocol: {type(error).__name__}"
        self._problem = problem
        for future in self._answers.values():
            if not future.done():
                future.set_exception(Unavailable(problem, hint="start it again"))
        self._news.set()

    async def _receive(self) -> dict[str, Any] | None:
        process = self._check_running()
        assert process.stdout is not None
        size, read = None, 0
        while line := await process.stdout.readline():
            read += len(line)
            if read > MAX_HEADER:
                raise ValueError
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                size = int(value)
        else:
            return None
        if size is None or not 0 <= size <= MAX_BYTES:
            raise ValueError
        found = json.loads(await process.stdout.readexactly(size))
        if not isinstance(found, dict):
            raise ValueError
        return found

    async def _handle(self, message: dict[str, Any]) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if method is None:
            future = self._answers.get(number) if isinstance(number, int) else None
            if future is not None and not future.done():
                if (error := message.get("error")) is not None:
                    future.set_exception(Unavailable(f"the language server refused: {str(error)[:300]}"))
                else:
                    future.set_result(message.get("result"))
        elif number is not None:
            # The server may ask for settings, of which there are none.
            items = params.get("items") if isinstance(params, dict) else None
            count = len(items) if method == "workspace/configuration" and isinstance(items, list) else None
            await self._send({"id": number, "result": None if count is None else [None] * count})
        elif method == "textDocument/publishDiagnostics" and isinstance(params, dict):
            uri, sent, version = str(params.get("uri")), params.get("diagnostics"), params.get("version")
            # Those of an older text come late now and then.
            if isinstance(sent, list) and version in (None, self._versions.get(uri)):
                self._pushed[uri] = sent
                self._news.set()


def _diagnostics(sent: Any) -> list[Diagnostic]:
    """Return what a server sent, in the order of lines; what is not a diagnostic is left out."""
    found = []
    for each in sent if isinstance(sent, list) else ():
        with suppress(KeyError, TypeError, ValueError, IndexError, AttributeError):
            start, level = each["range"]["start"], each.get("severity", 1)
            found.append(
                Diagnostic(
                    int(start["line"]) + 1,
                    int(start["character"]) + 1,
                    SEVERITY[max(int(level), 1) - 1],
                    str(each["message"])[:MAX_MESSAGE],
                    str(each.get("source") or ""),
                    str(each.get("code") or ""),
                )
            )
    return sorted(found)


_LANGUAGES = {
    each: language
    for language, suffixes in {
        "python": ("py", "pyi"),
        "javascript": ("js", "mjs"),
        "typescript": ("ts",),
        "typescriptreact": ("tsx",),
        "rust": ("rs",),
        "c": ("c", "h"),
        "cpp": ("cpp", "hpp"),
        "ruby": ("rb",),
        "markdown": ("md",),
        "shellscript": ("sh",),
        "yaml": ("yml",),
    }.items()
    for each in suffixes
}


def find_language(name: str) -> str:
    """Return the language of a file by its name."""
    suffix = name.rpartition(".")[2].lower()
    return _LANGUAGES.get(suffix, suffix)  # go, java, json: most are called like their files
