"""Run schemathesis on a real server: `make fuzz`. Brings it into a venv of its own, which goes again.

It reads the description of the server and sends what that allows, and what it does not. No answer may be a
server error. Arguments are handed on: `make fuzz ARGS="--max-examples 50"`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import dgent
from tests.http.client import token_for
from tests.http.process import serve

USUAL = ("--checks", "not_a_server_error", "--phases", "examples,fuzzing", "--max-examples", "5")
LEFT_OUT = {
    "/v1/changes": "it does not end",
    "/v1/verbs/data.watch": "it does not end",
    "/v1/import": "the program cannot make lines of JSON",
    "/v1/verbs/data.import": "the program cannot make lines of JSON",
}


async def run(folder: Path, words: list[str]) -> int:
    """Install the program, start a server, let the one try the other; its exit code."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "schemathesis>=4"], check=True)
    settings = folder / ".config/dgent/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('embedder = "hashed"\n')  # without one, some verbs can only say so
    url = f"sqlite:///{folder}/store.db"
    async with dgent.open(url) as u:
        token = await token_for(u, "partner")
        await u.remember({"n": 1}, id="a")
    async with serve(url, folder, ("--rate", "1000000")) as server:
        program = await asyncio.create_subprocess_exec(
            str(folder / "venv/bin/schemathesis"),
            *("run", f"{server.url}/v1/openapi.json", "--url", server.url),
            *("--header", f"Authorization: Bearer {token}"),
            *(word for path in LEFT_OUT for word in ("--exclude-path", path)),
            *(words or USUAL),
            cwd=folder,
        )
        return await program.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dgent-fuzz-") as folder:
        sys.exit(asyncio.run(run(Path(folder), sys.argv[1:])))
