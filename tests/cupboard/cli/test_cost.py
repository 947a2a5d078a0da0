"""What the cupboard costs those who do not use it: nothing is written, and next to nothing loaded."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from dgent.cupboard import errors
from dgent.errors import DgentError
from dgent.verbs.outcome import outcome_of
from tests.cli.terminal import Terminal

READS = [
    ["ready"],
    ["ready", "--explain"],
    ["board"],
    ["lessons", "x"],
    ["crumb", "list"],
    ["crumb", "blocked"],
    ["trail", "list"],
    ["link", "list"],
    ["property", "list"],
    ["property", "categories", "type"],
    ["stash", "list"],
    ["metadata", "list"],
    ["metadata", "schemas"],
    ["cupboard", "list", "properties"],
    ["cupboard", "audit"],
    ["cupboard", "graph"],
    ["status"],
    ["log"],
]

ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DgentError)]


@pytest.fixture
def dgent_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(tmp_path / "home", monkeypatch)
    terminal("remember", "x", "--id", "a")
    return terminal


def digest(terminal: Terminal) -> str:
    return hashlib.sha256(terminal.store.read_bytes()).hexdigest()


def test_looking_writes_nothing(dgent_: Terminal) -> None:
    before = digest(dgent_)
    for words in READS:
        told = dgent_(*words)
        assert told.code == 0, (words, told.err)
        assert digest(dgent_) == before, words
    assert "priority" in dgent_("property", "list").out
    assert [each["name"] for each in dgent_("data", "schemas", "--json").data["items"]] == [""]
    dgent_("crumb", "add", "first")
    before = digest(dgent_)
    for words in READS:
        assert dgent_(*words).code == 0, words
        assert digest(dgent_) == before, words


def test_status_and_log_tell_of_the_work(dgent_: Terminal) -> None:
    assert dgent_("status", "--json").data["work"] is None and dgent_("log", "--json").data["work"] is None
    dgent_("explore", "try", "redis")
    for number in range(7):
        dgent_("crumb", "add", f"step {number}", "-s", "ready")
    for word in ("status", "log"):
        work = dgent_(word, "--json").data["work"]
        assert [each["name"] for each in work["trails"]] == ["try redis"]
        assert [each["name"] for each in work["ready"]] == [f"step {n}" for n in range(5)] and work["more"]
        told = dgent_(word).out
        assert "1 active trail  try redis" in told and "5+ ready  step 0, step 1" in told
    assert "active trail" not in dgent_("log", "--author", "system").out, "who looks for something else"


def test_other_commands_do_not_load_it(dgent_: Terminal) -> None:
    program = (
        "import sys\n"
        "from dgent.doors.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*[name for name in sys.modules if name.startswith('dgent.cupboard')], file=sys.stderr)\n"
    )
    for words in (["--help"], ["get", "a"], ["status"], ["log"], ["recall"], ["undo", "--dry-run"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
        assert done.stdout and not done.stderr.strip(), (words, done.stderr)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_exit_code(kind: type[DgentError]) -> None:
    expected = {"InputError": 2, "NotFound": 4, "Conflict": 5, "ConfigError": 3}
    bases = [base.__name__ for base in kind.__mro__]
    wanted = next((code for name, code in expected.items() if name in bases), outcome_of(kind("x")).exit)
    assert outcome_of(kind("x")).exit == wanted
