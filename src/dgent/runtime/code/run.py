"""The tool `run`: a command in the workspace, with a time limit, bounded output and a clean end.

A command gets a process group of its own, which ends with it: what it left running ends too, also where it
ignores the polite signal. A process that leaves the group by itself is not found.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
import time
from contextlib import suppress
from typing import Annotated, Any

from dgent.config.command import command_environment
from dgent.errors import InputError, NotFound
from dgent.runtime.code.context import CodeContext, Ended
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool

MAX_OUTPUT = 40_000  # bytes that are shown: half of them from the beginning, half from the end
MAX_WRITTEN = 64 * 1024 * 1024  # bytes after which a command is ended
MAX_SECONDS = 3_600.0
MAX_COMMAND = 20_000
GRACE_S = 2.0  # between the polite signal and the other one
DRAIN_S = 0.5  # for output that is left when the command has ended
_OPERATORS = frozenset(("|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1", "2>", "2>/dev/null"))


class Output:
    """The beginning and the end of what a command wrote."""

    def __init__(self) -> None:
        self.head, self.tail, self.size = bytearray(), bytearray(), 0

    def add(self, part: bytes) -> None:
        """Add what was read; what is in the middle is dropped."""
        self.size += len(part)
        space = MAX_OUTPUT // 2 - len(self.head)
        self.head += part[:space]
        self.tail += part[max(space, 0) :]
        if len(self.tail) > MAX_OUTPUT:
            del self.tail[: len(self.tail) - MAX_OUTPUT // 2]

    def text(self) -> str:
        """Return what is shown; unreadable bytes are marked."""
        tail = self.tail[-(MAX_OUTPUT // 2) :]
        dropped = self.size - len(self.head) - len(tail)
        middle = f"\n… {dropped} bytes are left out …\n".encode() if dropped else b""
        return bytes(self.head + middle + tail).decode(errors="backslashreplace").replace("\0", "\\x00")


def run_tool(context: CodeContext) -> Tool:
    """Return the tool that runs commands."""

    async def run(
        command: Annotated[str, "the command and its arguments, such as: python -m pytest -q"],
        call: Call,
        path: Annotated[str, "the folder to run it in"] = "",
        timeout: Annotated[float, "seconds after which it is ended"] = 120.0,
        shell: Annotated[bool, "let a shell run it, for pipes and redirections"] = False,
        input: Annotated[str, "what it reads from standard input"] = "",
    ) -> Answer:
        """Run a command in the workspace, and return its exit code and output."""
        if not 0 < timeout <= MAX_SECONDS:
            raise InputError(f"timeout must be above 0 and at most {MAX_SECONDS:g} seconds", field="timeout")
        words = split_command(command, shell)
        context.policy.require_command("run", words, shell, command, call)
        folder = context.workspace.name(path)
        argv = ["/bin/sh", "-c", command] if shell else words
        if context.runner is not None and not input:
            ended = await context.runner(argv, folder, timeout, call)
        else:
            ended = await run_command(context, argv, folder, timeout, input.encode(errors="replace"))
        message = ended.reason or f"exit code {ended.code}"
        data: dict[str, Any] = {"exit_code": ended.code, "output": ended.output}
        data |= {"seconds": round(ended.seconds, 3), "ended": ended.reason}
        return {"ok": ended.code == 0 and not ended.reason, "message": message, "data": data}

    return function_tool(run, effect="execute", kind="execute")


def split_command(command: str, shell: bool) -> list[str]:
    """Return the words of a command; InputError where only a shell would understand it."""
    if not command.strip() or len(command) > MAX_COMMAND or "\0" in command:
        raise InputError(f"a command has 1 to {MAX_COMMAND} characters and no NUL", field="command")
    try:
        if shell:
            found = shlex.shlex(command, posix=True, punctuation_chars=True)
            found.whitespace_split = True
            return list(found)
        words = shlex.split(command)
    except ValueError as error:
        if shell:
            return command.split()
        raise InputError(f"the command cannot be split into words: {error}", hint="close quotes") from None
    if used := sorted(_OPERATORS.intersection(words)):
        raise InputError(f"{used[0]!r} needs a shell", hint="pass shell=true", field="command")
    if not words:
        raise InputError("the command is empty", field="command")
    return words


async def run_command(
    context: CodeContext, argv: list[str], folder: str, timeout: float, given: bytes = b""
) -> Ended:
    """Run a command and wait for its end; it has ended when this returns or raises."""
    started = time.monotonic()
    output = Output()
    # Own pipes: the loop's own would wait for every process that still has them open.
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        try:
            process = await _start(context, argv, folder, write_end, given)
        finally:
            os.close(write_end)
        reading = asyncio.ensure_future(_read(reader, output))
        try:
            reason = await _wait(process, reader, reading, timeout)
        finally:
            await _end(process, reading)
    finally:
        pipe.close()
    assert process.returncode is not None
    return Ended(process.returncode, reason, output.text(), time.monotonic() - started)


async def _start(
    context: CodeContext, argv: list[str], folder: str, write_end: int, given: bytes
) -> asyncio.subprocess.Process:
    env = command_environment(context.environment)
    with context.workspace.folder(folder) as at, tempfile.TemporaryFile() as stdin:
        stdin.write(given)
        stdin.seek(0)
        place = context.workspace.root / folder
        # By its descriptor where the system can: the path may lead elsewhere by now.
        by_handle = f"/proc/self/fd/{at}"
        cwd = by_handle if at is not None and os.path.isdir(by_handle) else str(place)
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env={**env, "PWD": str(place)},
                stdin=stdin,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            hint = "is it installed, and is the first word the program?"
            raise NotFound(f"{argv[0]!r} cannot be run: {error}", hint=hint) from None


async def _read(reader: asyncio.StreamReader, output: Output) -> None:
    while output.size <= MAX_WRITTEN and (part := await reader.read(65_536)):
        output.add(part)


async def _wait(
    process: asyncio.subprocess.Process,
    reader: asyncio.StreamReader,
    reading: asyncio.Future[None],
    timeout: float,
) -> str:
    """Wait until a command ends, has written too much, or the time is over; returns why it is to be ended."""
    waiting = asyncio.ensure_future(process.wait())
    try:
        deadline = asyncio.get_running_loop().time() + timeout
        await asyncio.wait((waiting, reading), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and not reader.at_eof():
            return f"ended: it wrote more than {MAX_WRITTEN} bytes"
        if reading.done() and not waiting.done():  # it closed its output and goes on
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait((waiting,), timeout=left)
        return "" if waiting.done() else f"ended: it took longer than {timeout:g} s"
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process, reading: asyncio.Future[None]) -> None:
    """End the process group, politely first if the command still runs, and read what is left."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    await process.wait()
    if not reading.done():  # a process that left the group may have the pipe open
        await asyncio.wait((reading,), timeout=DRAIN_S)
        reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
