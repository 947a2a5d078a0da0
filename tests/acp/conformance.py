"""Every message of `dgent acp` by the protocol's published JSON schema: `make conformance`.

The schema is in the npm package of the protocol. Once it is there, every test in this folder checks by it
what the agent sends; this program brings it, runs them and prints what was checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tests.mcp.conformance import install

PACKAGE = "@agentclientprotocol/sdk@2.4.0"
REPORT = "ACP_REPORT"  # the variable with the file that tests write a line to for each message
FOLDER = Path(sys.prefix) / "conformance-acp"  # of its own: npm removes what it did not bring
SCHEMA = FOLDER / "node_modules" / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.json"


@cache
def load_schema() -> dict[str, Any] | None:
    """Return the published schema, if it is there."""
    return json.loads(SCHEMA.read_text()) if SCHEMA.exists() else None


@cache
def find_type(method: str, answer: bool) -> str:
    """Return the name of the type of a message that the agent sends; KeyError if the schema has none."""
    schema = load_schema()
    assert schema is not None
    side, ends = ("agent", ("Response",)) if answer else ("client", ("Request", "Notification"))
    found = [
        name
        for name, each in schema["$defs"].items()
        if each.get("x-method") == method and each["x-side"] == side and name.endswith(ends)
    ]
    if len(found) != 1:
        raise KeyError(f"{method} has the types {found}")
    return found[0]


@cache
def open_validator(name: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator({**(load_schema() or {}), "anyOf": [{"$ref": f"#/$defs/{name}"}]})


def check(method: str, given: Any, *, answer: bool = False, error: bool = False) -> None:
    """Raise an error for what does not fit the schema; without the schema, do nothing."""
    schema = load_schema()
    if schema is None:
        return
    name = "Error" if error else find_type(method, answer)
    open_validator(name).validate(given)
    if path := os.environ.get(REPORT):
        kind = given["update"]["sessionUpdate"] if name == "SessionNotification" else ""
        beyond = sorted(set(given) - set(schema["$defs"][name].get("properties", given)))
        with open(path, "a") as file:
            file.write(f"{name} {kind}".strip() + (f" (also {', '.join(beyond)})" if beyond else "") + "\n")


def main() -> None:
    """Bring the schema if need be, run the tests of this folder by it, and print the outcome."""
    if load_schema() is None:
        install(FOLDER, [PACKAGE])
        load_schema.cache_clear()
    assert load_schema() is not None, f"{PACKAGE} has no {SCHEMA}"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        words = [sys.executable, "-m", "pytest", "-q", "--forks", "2", str(Path(__file__).parent)]
        done = subprocess.run(words, env={**os.environ, REPORT: str(report)})
        counts = Counter(report.read_text().splitlines()) if report.exists() else Counter()
    for name, count in sorted(counts.items()):
        print(f"{count:6} {name}")
    print(f"{counts.total():6} messages fit the schema of {PACKAGE}" if not done.returncode else "FAILS")
    sys.exit(done.returncode or not counts)


if __name__ == "__main__":
    main()
