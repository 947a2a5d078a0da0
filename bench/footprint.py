"""What dgent costs before it does anything: the import, a command's start, and an open store's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from bench.measure import Row, quartiles, say, verdict
from bench.plan import Plan, size_text
from bench.stores import VERSIONED, Stores

_IMPORT_MS = 90.0
_COMMAND_MS = 120.0
_MEMORY_MB = 8.0  # "flat": less than half of the 16 MB page cache that one connection may fill

_PROGRAMS = {
    "bare": "pass",
    "import": "import dgent",
    "names": "import dgent; [getattr(dgent, name) for name in dgent.__all__]",
    "engine": "import dgent, dgent.universe.universe, dgent.store.sqlite.backend",
    "help": "import sys; sys.argv[1:] = ['--help']; from dgent.doors.cli.main import main; main()",
    "get": "import sys; sys.argv[1:] = ['get', 'a']; from dgent.doors.cli.main import main; main()",
}
_STORE = "from dgent.doors.cli.main import main; main(['remember', 'hello', '--id', 'a'])"

_OPEN = """
import asyncio, json, sys
from bench.record import SCHEMA
from bench.stores import open_store
from dgent import Query

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6

async def main(path, id):
    async with open_store(path, "full") as u:
        opened = resident()
        assert await u.get(id) is not None
        found = await u.recall(Query(schema=SCHEMA.name, limit=50))
        assert len(found) == 50
        print(json.dumps([opened, resident()]))

asyncio.run(main(*sys.argv[1:]))
"""


async def footprint(plan: Plan, stores: Stores) -> list[Row]:
    """CPU of an import, and resident memory with a large store against a tiny one."""
    say("  import and memory")
    return _imports(plan.starts) + await _memory(plan, stores)


def _imports(starts: int) -> list[Row]:
    cpu: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    with tempfile.TemporaryDirectory() as cache:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DGENT_"))}
        environment = kept | {"PYTHONPYCACHEPREFIX": cache, "HOME": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed dgent has its bytecode
        _cpu_ms(_STORE, environment)
        for turn in range(-1, starts):
            for name, program in _PROGRAMS.items():
                took = _cpu_ms(program, environment)
                if turn >= 0:
                    cpu[name].append(took)
    rows = []
    for name, work, goal in (
        ("import", "import dgent, CPU over bare Python", _IMPORT_MS),
        ("names", "  and all its public names", _IMPORT_MS),
        ("engine", "  and the SQLite engine", None),
        ("help", "dgent --help, CPU over bare Python", _COMMAND_MS),
        ("get", "dgent get, CPU over bare Python", _COMMAND_MS),
    ):
        extra = [ours - base for ours, base in zip(cpu[name], cpu["bare"], strict=True)]
        low, middle, high = quartiles(extra)
        rows.append(
            Row(
                work,
                "—" if goal is None else f"≤ {goal:g} ms",
                middle,
                low,
                high,
                min(extra),
                median(cpu["bare"]),
                median(cpu[name]),
                verdict(middle, low, high, at_most=goal),
                "ms",
            )
        )
    return rows


def _cpu_ms(program: str, environment: dict[str, str]) -> float:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=quiet, stderr=quiet)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"{program!r} failed")
    return (usage.ru_utime + usage.ru_stime) * 1e3


async def _memory(plan: Plan, stores: Stores) -> list[Row]:
    small, large = min(200, plan.sizes[0]), plan.sizes[-1]
    paths = {"small": await stores.sized(small), "large": await stores.sized(large)}
    used: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(5):
        for name, path in paths.items():
            command = [sys.executable, "-c", _OPEN, path, VERSIONED[0]]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            used[name].append(json.loads(answer.stdout)[1])
    growth = [a - b for a, b in zip(used["large"], used["small"], strict=True)]
    low, middle, high = quartiles(growth)
    return [
        Row(
            f"memory: open {size_text(large)}, get one, query 50, over a store of {small}",
            f"≤ {_MEMORY_MB:g} MB",
            middle,
            low,
            high,
            None,
            median(used["small"]),
            median(used["large"]),
            verdict(middle, low, high, at_most=_MEMORY_MB),
            "MB",
        )
    ]
