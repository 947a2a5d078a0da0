"""One call of each verb, as a program and as the command line would say it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import dgent
from dgent import clock
from dgent.membrane import Catalog
from dgent.store.jsonl.line import seal_line
from dgent.store.port.telemetry import TelemetryEvent
from dgent.universe.blob import open_blobs
from dgent.universe.telemetry import telemetry_of
from tests.verbs.block_cases import BLOCK_CASES, fill_blocks
from tests.verbs.case import Case
from tests.verbs.cupboard_cases import CUPBOARD_CASES, fill_cupboard
from tests.verbs.foreign_cases import FOREIGN_CASES
from tests.verbs.membrane_cases import MEMBRANE_CASES, fill_membrane
from tests.verbs.message_cases import MESSAGE_CASES, fill_messages
from tests.verbs.runtime_cases import RUNTIME_CASES, fill_consents
from tests.verbs.table_cases import TABLE_CASES, fill_tables

TOKEN_ID = "abcdefghijkl"
TOKEN = f"dgent_{TOKEN_ID}_{'s' * 43}"
"""A token of a partner that every stage has."""

CASES: dict[str, list[Case]] = {
    "data.put": [
        Case(
            {"data": {"n": 9}, "id": "new", "tag": ("x", "y")},
            ['{"n": 9}', "--id", "new", "-t", "x", "-t", "y"],
        ),
        Case({"data": "just words", "id": "words"}, ["just", "words", "--id", "words"]),
        Case(
            {"data": {"n": 1}, "id": "a", "expect": 7},
            ['{"n": 1}', "--id", "a", "--expect", "7"],
            "version_conflict",
        ),
        Case({"data": '{"n"'}, ['{"n"'], "input"),
    ],
    "data.get": [
        Case({"id": "a"}, ["a"]),
        Case({"id": "a", "as_of": "1"}, ["a", "--as-of", "1"]),
        Case({"id": "nobody"}, ["nobody"], "not_found"),
        Case({"id": "a", "as_of": "soon"}, ["a", "--as-of", "soon"], "input"),
    ],
    "data.exists": [
        Case({"id": "a"}, ["a"]),
        Case({"id": "nobody"}, ["nobody"]),
        Case({"id": ""}, [""], "input"),
    ],
    "data.query": [
        Case({"schema": "note", "where": ("n>=2",)}, ["note", "-w", "n>=2"]),
        Case({"tag": ("t",), "limit": 1}, ["-t", "t", "-n", "1"]),
        Case({"where": ('{"n": {"$wat": 1}}',)}, ["-w", '{"n": {"$wat": 1}}'], "query"),
        Case({"limit": 0}, ["-n", "0"], "input"),
        Case({"schema": "n>1"}, ["n>1"], "input"),
        Case({"schema": "nope"}, ["nope"], "not_found"),
        Case({"schema": "some words"}, ["some", "words"]),
    ],
    "data.count": [Case({"schema": "note"}, ["note"])],
    "data.values": [
        Case({"schema": "note", "path": "text"}, ["note", "text"]),
        Case({"schema": "note", "path": "a..b"}, ["note", "a..b"], "query"),
    ],
    "data.tags": [Case({}, []), Case({"schema": "note", "limit": 2}, ["note", "-n", "2"])],
    "data.search": [
        Case({"words": "some words", "limit": 3}, ["some", "words", "-k", "3"]),
        Case({"words": "some", "as_of": "1"}, ["some", "--as-of", "1"]),
    ],
    "data.list": [Case({"prefix": "b", "limit": 5}, ["b", "-n", "5"])],
    "data.delete": [Case({"id": "a"}, ["a"]), Case({"id": "nobody"}, ["nobody"], "not_found")],
    "data.schemas": [Case({}, [])],
    "data.stats": [Case({}, [])],
    "data.forget": [
        Case({"id": ("a", "b")}, ["a", "b", "--yes"]),
        Case({"id": ("a",), "dry_run": True}, ["a", "--dry-run"]),
        Case({"id": ("nobody",)}, ["nobody", "--yes"], "not_found"),
    ],
    "data.forget-user": [
        Case({"user": "ada"}, ["ada", "--yes"]),
        Case({"user": "ada", "dry_run": True}, ["ada", "--dry-run"]),
        Case({"user": "a/b"}, ["a/b", "--yes"], "input"),
    ],
    "data.upgrade": [
        Case(
            {"schema": "note", "contracts": ("tests.verbs.contracts",), "dry_run": True},
            ["note", "-c", "tests.verbs.contracts", "--dry-run"],
        ),
        Case({"schema": "note", "contracts": ("no.such",)}, ["note", "-c", "no.such"], "input"),
    ],
    "data.export": [Case({"schema": "note", "to": "{new}"}, ["note", "-o", "{new}"])],
    "data.import": [
        Case({"path": "{exported}", "existing": "skip"}, ["{exported}", "--existing", "skip"]),
        Case({"path": "{new}"}, ["{new}"], "not_found"),
    ],
    "blob.put": [
        Case({"key": "doc", "path": "{exported}"}, ["doc", "{exported}"]),
        Case({"key": "doc", "path": "{new}"}, ["doc", "{new}"], "not_found"),
        Case(
            {"key": "pic.png", "path": "{exported}", "expect": 0},
            ["pic.png", "{exported}", "--expect", "0"],
            "version_conflict",
        ),
        Case(
            {"key": "x", "path": "{exported}", "content_type": "no"},
            ["x", "{exported}", "--type", "no"],
            "input",
        ),
    ],
    "blob.get": [
        Case({"key": "pic.png", "to": "{new}"}, ["pic.png", "-o", "{new}"]),
        Case({"key": "nobody", "to": "{new}"}, ["nobody", "-o", "{new}"], "not_found"),
        Case({"key": "pic.png", "to": "{exported}"}, ["pic.png", "-o", "{exported}"], "input"),
    ],
    "blob.info": [Case({"key": "pic.png"}, ["pic.png"]), Case({"key": "x"}, ["x"], "not_found")],
    "blob.list": [
        Case({"prefix": "p", "limit": 5}, ["p", "-n", "5"]),
        Case({"after": "z"}, ["--after", "z"]),
        Case({"limit": 0}, ["-n", "0"], "input"),
    ],
    "blob.delete": [Case({"key": "pic.png"}, ["pic.png"]), Case({"key": "x"}, ["x"], "not_found")],
    "blob.forget": [Case({"keys": ("pic.png", "x")}, ["pic.png", "x", "--yes"])],
    "blob.gc": [
        Case({"grace": "0d"}, ["--grace", "0d", "--yes"]),
        Case({"dry_run": True}, ["--dry-run"]),
        Case({"grace": "soon"}, ["--grace", "soon", "--yes"], "input"),
    ],
    "data.history": [Case({"id": "a"}, ["a"]), Case({"id": "nobody"}, ["nobody"], "not_found")],
    "data.diff": [Case({"id": "a"}, ["a"]), Case({"id": "a", "old": 9}, ["a", "9"], "not_found")],
    "data.log": [Case({"limit": 2}, ["-n", "2"]), Case({"id": "a"}, ["--id", "a"])],
    "data.get-commit": [
        Case({"seq": 1}, ["1"]),
        Case({"seq": "a"}, ["a"], "input"),
        Case({"seq": 99}, ["99"], "not_found"),
    ],
    "data.changes": [Case({"since": 1}, ["1"])],
    "data.undo": [
        Case({}, []),
        Case({"seq": 1}, ["1"], "undo_conflict"),
        Case({"dry_run": True}, ["--dry-run"]),
    ],
    "data.redo": [Case({}, [], "not_found"), Case({"dry_run": True}, ["--dry-run"], "not_found")],
    "data.watch": [],  # tests/cli/test_watch.py: it never ends by itself
    "data.compact": [Case({"versions": 0}, ["--versions", "0", "--yes"]), Case({}, ["--yes"], "input")],
    "data.associate": [Case({"a": "a", "b": "b", "kind": "near"}, ["a", "b", "-k", "near"])],
    "data.associated": [Case({"id": "a"}, ["a"])],
    "data.chain": [Case({"id": "b"}, ["b"])],
    "constellation.list": [Case({}, [])],
    "constellation.create": [Case({"name": "fresh"}, ["fresh"]), Case({"name": "../x"}, ["../x"], "input")],
    "constellation.copy": [Case({"name": "default", "to": "twin"}, ["default", "twin"])],
    "constellation.delete": [
        Case({"name": "default", "dry_run": True}, ["default", "--dry-run"]),
        Case({"name": "nobody"}, ["nobody", "--yes"], "not_found"),
    ],
    "constellation.fork": [
        Case({"to": "sandbox"}, ["sandbox"]),
        Case({"to": "sandbox", "since": "1"}, ["sandbox", "--since", "1"]),
        Case({"to": "sandbox", "scope": "core"}, ["sandbox", "--scope", "core"]),
        Case({"to": "sandbox", "scope": "since"}, ["sandbox", "--scope", "since"], "input"),
        Case({"to": "default"}, ["default"], "conflict"),
    ],
    "constellation.merge": [
        Case({"name": "nobody"}, ["nobody"], "not_found"),
        Case({"name": "default", "dry_run": True}, ["default", "--dry-run"], "not_found"),
    ],
    "fork.list": [Case({}, [])],
    "fork.status": [Case({"name": "default"}, ["default"], "not_found")],
    "fork.pull": [
        Case({"name": "default"}, ["default"], "not_found"),
        Case({"name": "default", "conflicts": "yours"}, ["default", "--conflicts", "yours"], "input"),
    ],
    "fork.delete": [Case({"name": "default"}, ["default", "--yes"], "not_found")],
    "config.list": [Case({}, [])],
    "config.get": [Case({"name": "author"}, ["author"]), Case({"name": "nope"}, ["nope"], "input")],
    "config.set": [
        Case({"name": "author", "value": "ann"}, ["author", "ann"]),
        Case({"name": "auther", "value": "x"}, ["auther", "x"], "input"),
    ],
    "config.unset": [Case({"name": "author"}, ["author"])],
    "outbox.list": [Case({}, [])],
    "outbox.replay": [Case({}, [])],
    "outbox.discard": [Case({"id": "nobody"}, ["nobody", "--yes"], "not_found")],
    "store.init": [Case({"folder": "{new}"}, ["{new}"], "not_found")],
    "store.status": [Case({}, []), Case({"all": True}, ["--all"])],
    # A row of the store has no datum, for `tables.repair` to mend: a deep look finds that.
    "store.sweep": [Case({}, ["--yes"])],
    "store.doctor": [Case({}, []), Case({"deep": True}, ["--deep"], exit=1)],
    "store.backup": [Case({"to": "{new}"}, ["{new}"])],
    "store.copy": [
        Case({"to": "sqlite:///{new}"}, ["sqlite:///{new}"]),
        Case({"to": "memory:"}, ["memory:"], "input"),
    ],
    "store.upgrade": [Case({}, []), Case({"dry_run": True, "no_backup": True}, ["--dry-run", "--no-backup"])],
    "store.restore": [
        Case({"source": "{backup}", "to": "other"}, ["{backup}", "--to", "other", "--yes"]),
        Case({"source": "{new}", "to": "other"}, ["{new}", "--to", "other", "--yes"], "not_found"),
    ],
    "embed.install": [Case({"wheel": "{new}"}, ["--from", "{new}"], "not_found")],
    "token.create": [
        Case({"for_agent": "eve", "trust": "friend"}, ["--for", "eve", "--trust", "friend"]),
        Case({"for_agent": "eve", "expires": "never"}, ["--for", "eve", "--expires", "never"]),
        Case({"for_agent": "eve", "expires": "soon"}, ["--for", "eve", "--expires", "soon"], "input"),
        Case({"for_agent": "eve", "trust": "untrusted"}, ["--for", "eve", "--trust", "untrusted"], "input"),
        Case({}, [], "input"),
    ],
    "token.list": [Case({}, [])],
    "token.revoke": [
        Case({"id": TOKEN_ID}, [TOKEN_ID]),
        Case({"id": "nobody"}, ["nobody"], "not_found"),
    ],
    "token.rotate": [
        Case({"id": TOKEN_ID}, [TOKEN_ID]),
        Case({"id": "nobody"}, ["nobody"], "not_found"),
    ],
    "functor.verify": [
        Case({"name": "list"}, ["list"]),
        Case({"name": "lst"}, ["lst"], "not_found"),
        Case({}, [], "input"),
    ],
    "telemetry.query": [
        Case({"trace": "t1", "limit": 1}, ["--trace", "t1", "-n", "1"]),
        Case({"span": "s1", "agent": "scout"}, ["s1", "--of", "scout"]),
        Case({"since": "soon"}, ["--since", "soon"], "input"),
        Case({"limit": 0}, ["-n", "0"], "input"),
    ],
    "telemetry.usage": [
        Case(
            {"by": ("agent", "model"), "since": "2026-05-01"},
            ["-b", "agent", "-b", "model", "--since", "2026-05-01"],
        ),
        Case({"by": ("mood",)}, ["-b", "mood"], "input"),
    ],
    "telemetry.prune": [
        Case({"days": 1}, ["--days", "1", "--yes"]),
        Case({"max_bytes": 10, "dry_run": True}, ["--bytes", "10", "--dry-run"]),
        Case({"days": -1}, ["--days", "-1", "--yes"], "input"),
    ],
    "embed.status": [Case({}, [])],
    "embed.run": [Case({}, [], "unsupported")],
    "jsonl.check": [Case({"folder": "{folder}"}, ["{folder}"], exit=1), Case({}, [], "unsupported")],
    "jsonl.compact": [
        Case({"folder": "{folder}"}, ["{folder}", "--yes"]),
        Case({"folder": "{folder}", "history": True}, ["{folder}", "--history"]),
        Case({}, ["--yes"], "unsupported"),
    ],
    "jsonl.git-setup": [
        Case({"folder": "{folder}"}, ["{folder}"]),
        Case({"folder": "{new}"}, ["{new}"], "not_found"),
    ],
    "jsonl.merge-driver": [
        Case(
            {
                "base": "{folder}/none",
                "ours": "{folder}/note.jsonl",
                "theirs": "{folder}/theirs",
                "path": "note.jsonl",
            },
            ["{folder}/none", "{folder}/note.jsonl", "{folder}/theirs", "note.jsonl"],
        ),
        Case({"base": "{new}", "ours": "{new}", "theirs": "{new}"}, ["{new}", "{new}", "{new}"], "input"),
    ],
    "jsonl.settle": [
        Case({"id": "a", "folder": "{disputed}"}, ["a", "{disputed}"]),
        Case({"id": "a", "folder": "{folder}"}, ["a", "{folder}"], "not_found"),
        Case({"id": "a"}, ["a"], "unsupported"),
    ],
    **CUPBOARD_CASES,
    **BLOCK_CASES,
    **MEMBRANE_CASES,
    **FOREIGN_CASES,
    **MESSAGE_CASES,
    **RUNTIME_CASES,
    **TABLE_CASES,
}


async def fill_folder(path: Path) -> None:
    """A store of text files in a git repository, with an odd line and what a merge needs."""
    path.mkdir()
    subprocess.run(["git", "-C", str(path), "init", "-q"], check=True)
    async with dgent.open(f"jsonl:{path}", author="ann") as u:
        for n in (1, 2):
            await u.put(dgent.Datum(id="a", data={"n": n}, schema="note", schema_version=1))
        with open(path / "note.jsonl", "a", encoding="ascii") as file:
            file.write("no line\n")
    (path / "none").write_bytes(b"")
    Catalog(path).register("elder", "d-gent")
    (path / "theirs").write_text('{"id":"theirs","data":{}}\n')


async def fill_disputed(path: Path) -> None:
    """A store of text files with a record that another copy changed, too."""
    async with dgent.open(f"jsonl:{path}", author="ann") as u:
        for n in (1, 2):
            await u.put(dgent.Datum(id="a", data={"n": n}, schema="note", schema_version=1))
    with open(path / "note.jsonl", "r+", encoding="ascii") as file:
        fields = json.loads(file.readline())
        fields |= {"rev": 2, "c": "elsewhere", "data": {"n": 3}, "prev": fields.pop("sum")}
        file.seek(0, 2)
        file.write(seal_line(fields)[0].decode())


async def fill_tokens(u: dgent.Universe) -> None:
    """A token of each trust, with a secret that the tests know."""
    for trust, letter in (("partner", "l"), ("friend", "m"), ("conversant", "n")):
        token = {
            "agent": "system" if trust == "partner" else "eve",
            "trust": trust,
            "secret_hash": hashlib.sha256(b"s" * 43).hexdigest(),
            "made_at": "2026-01-01T00:00:00Z",
        }
        id = f"dgent.token/{TOKEN_ID[:-1]}{letter}"
        await u.put(dgent.Datum(id=id, data=token, schema="dgent.token", schema_version=1))


async def fill_telemetry(u: dgent.Universe) -> None:
    """Two calls of a model, which are recent enough to be kept."""
    data = {"gen_ai.agent.name": "scout", "gen_ai.request.model": "m1", "gen_ai.usage.input_tokens": 5}
    for n in range(2):
        event = TelemetryEvent("span", clock.now(), data, span_id=f"s{n}", trace_id="t1", id=f"event-{n}")
        await telemetry_of(u).append([event])


async def fill(path: Path) -> None:
    """The store that every case starts from."""
    async with dgent.open(f"sqlite:///{path}", author="ann") as u:
        await u.put(
            dgent.Datum(id="a", data={"n": 1}, schema="note", schema_version=1, tags=frozenset({"t"}))
        )
        await u.put(
            dgent.Datum(
                id="b", data={"n": 2}, schema="note", schema_version=1, tags=frozenset({"t"}), parent_id="a"
            )
        )
        await fill_tokens(u)
        await fill_telemetry(u)
        await fill_membrane(u)
        await fill_messages(u)
        await fill_consents(u)
        await open_blobs(u).put("pic.png", b"pixels", "image/png")
        await fill_cupboard(u)
        await fill_blocks(u)
        await fill_tables(u)
        await u.put(
            dgent.Datum(id="a", data={"n": 3}, schema="note", schema_version=1, tags=frozenset({"t"}))
        )
