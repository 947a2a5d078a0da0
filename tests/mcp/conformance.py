"""Runs the public conformance suite of the protocol: `make conformance`.

It needs npm, which brings the suite and the node that it asks for. Scenarios that fit any server run against
`dgent mcp --http`; those that need the suite's own tools, resources and prompts run against `fixture.py`,
which serves them over the same transport.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.mcp.host import environment, own_command

PACKAGES = ("@modelcontextprotocol/conformance@0.1.16", "node@22")
TOKEN = "a-token-of-some-length"
# The suite has no option for a token; undici, which sends all its requests, lets one add a header.
ADD_TOKEN = """
import channels from 'node:diagnostics_channel';
channels.channel('undici:request:create').subscribe(({request}) =>
  request.addHeader('authorization', 'Bearer ' + process.env.TOKEN));
"""

REAL = (
    "server-initialize",
    "ping",
    "completion-complete",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
LEFT_OUT = {"server-sse-polling": "no event store: a lost answer is asked for again"}
"""Of the scenarios of the fixture, which are all others."""
FOLDER = Path(sys.prefix) / "conformance"


def find_suite(folder: Path = FOLDER) -> list[str] | None:
    """The words that start the suite, if it is there."""
    suite = folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    node = folder / "node_modules" / "node" / "bin" / "node"
    if not (suite.exists() and node.exists()):
        return None
    return [str(node), "--import", "data:text/javascript," + quote(ADD_TOKEN), str(suite)]


def install(folder: Path = FOLDER, packages: Sequence[str] = PACKAGES) -> None:
    """Bring packages with npm."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    words = [npm, "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(folder)]
    subprocess.run([*words, *packages], check=True)


def install_node(folder: Path = FOLDER) -> None:
    """Set up the node that the suite asks for."""
    setup = folder / "node_modules" / "node" / "installArchSpecificPackage.js"
    subprocess.run(["node", str(setup)], cwd=setup.parent, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def serving(words: list[str], home: Path) -> Iterator[str]:
    """A server as a process, by its address."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment(home)) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "it did not start"
        try:
            yield found[0]
        finally:
            process.terminate()


def run(suite: list[str], url: str) -> dict[str, tuple[int, int]]:
    """Run every scenario; how many checks of each passed and failed."""
    words = [*suite, "server", "--url", url, "--suite", "all"]
    env = {**os.environ, "TOKEN": TOKEN}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)
    found = re.findall(r"^\S ([a-z0-9-]+): (\d+) passed, (\d+) failed", done.stdout, re.MULTILINE)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return {name: (int(passed), int(failed)) for name, passed, failed in found}


def outcomes(suite: list[str], home: Path) -> Iterator[tuple[str, str, bool]]:
    """Each server and each scenario that applies to it, and whether it passes."""
    (home / "token").write_text(TOKEN)
    store = f"sqlite:///{home}/s.db"
    real = own_command("--url", store, "mcp", "--http", "--port", "0", "--token-file", str(home / "token"))
    fixture = [sys.executable, "-W", "ignore", "-m", "tests.mcp.fixture", TOKEN]
    for title, words in (("dgent", real), ("fixture", fixture)):
        with serving(words, home) as url:
            found = run(suite, url)
        for scenario in REAL if title == "dgent" else found:
            passed, failed = found.get(scenario, (0, 1))
            if scenario not in LEFT_OUT:
                yield title, scenario, passed > 0 and not failed


def main() -> None:
    """Bring the suite if need be, run it and print the outcomes."""
    if find_suite() is None:
        install()
        install_node()
    suite = find_suite()
    assert suite is not None
    with tempfile.TemporaryDirectory() as name:
        bad = False
        for title, scenario, passes in outcomes(suite, Path(name)):
            bad |= not passes
            print(f"{title:8} {scenario:32} {'passes' if passes else 'FAILS'}")
    for scenario, reason in LEFT_OUT.items():
        print(f"{'':8} {scenario:32} left out: {reason}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
