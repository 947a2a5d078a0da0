"""Run the suites and oracles of the bridges, and write the table of docs/internals/bridges.md.

`python tools/proof.py` runs them as `make test` does, `--soak 20` with programs twenty times as many. Without
`--write` the table is only printed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "internals" / "bridges.md"
BEGIN, END = "<!-- made by tools/proof.py -->", "<!-- end -->"
GRAPH = "tests/bridges/langgraph"
OPENAI = "tests/bridges/test_openai_agents.py"
ANTHROPIC = "tests/bridges/test_anthropic.py"
PYDANTIC = "tests/bridges/test_pydantic_ai.py"
ADK = "tests/bridges/adk"  # whose tests need an environment of their own
_EXAMPLES = re.compile(r"- (\d+) passing(?: examples)?, (\d+) failing")


class Row(NamedTuple):
    """A suite or an oracle, the test that runs it, and how many cases each run of that test has."""

    name: str
    test: str  # a file, or a file and a function
    unit: str = "tests"
    each: int = 1


ROWS = [
    Row(
        "LangGraph's public conformance suite, on each engine",
        f"{GRAPH}/test_conformance.py::test_the_public_suite_passes",
        "cases",
        81,
    ),
    Row(
        "checkpoints against `InMemorySaver`",
        f"{GRAPH}/test_saver.py::test_programs_read_as_in_the_framework",
        "programs of up to 14 steps",
    ),
    Row(
        "checkpoints, engine against engine",
        f"{GRAPH}/test_saver.py::test_engines_read_the_same",
        "programs of up to 14 steps",
    ),
    Row(
        "delta channels against `InMemorySaver`, on each engine",
        f"{GRAPH}/test_conformance.py::test_a_delta_history_is_that_of_the_framework",
        "programs of 30 steps",
    ),
    Row(
        "a graph with interrupts, subgraphs and forks against `InMemorySaver`, on each engine",
        f"{GRAPH}/test_graph.py::test_a_graph_runs_as_on_the_saver_of_the_framework",
        "runs",
    ),
    Row(
        "long-term memory against `InMemoryStore`",
        f"{GRAPH}/test_store.py::test_programs_answer_as_in_the_framework",
        "programs of up to 8 batches",
    ),
    Row(
        "long-term memory, engine against engine",
        f"{GRAPH}/test_store.py::test_engines_answer_the_same",
        "programs of up to 8 batches",
    ),
    Row(
        "nearest vectors against `InMemoryStore`",
        f"{GRAPH}/test_store.py::test_the_nearest_are_those_of_the_framework",
        "searches",
    ),
    Row(
        "cache against `InMemoryCache`, with expiry",
        f"{GRAPH}/test_cache.py::test_programs_answer_as_in_the_framework",
        "programs of up to 15 steps",
    ),
    Row(
        "OpenAI sessions against `AdvancedSQLiteSession`, on each engine",
        f"{OPENAI}::test_random_programs_with_branches",
        "programs of 40 steps",
    ),
    Row(
        "OpenAI sessions against `SQLiteSession`, with compaction",
        f"{OPENAI}::test_random_programs_with_compaction",
        "programs of 40 steps",
    ),
    Row(
        "Anthropic's memory tool against `BetaLocalFilesystemMemoryTool`",
        f"{ANTHROPIC}::test_it_answers_as_the_tool_on_files",
        "programs of up to 14 commands",
    ),
    Row(
        "paths that lead out of Anthropic's `/memories`",
        f"{ANTHROPIC}::test_no_path_leads_out",
        "paths",
    ),
    Row(
        "pydantic-ai's conversations against `InMemoryConversationStore`",
        f"{PYDANTIC}::test_random_programs",
        "programs of 25 steps",
    ),
    Row(
        "ADK's sessions against `InMemorySessionService`, on each engine",
        f"{ADK}/test_session.py::test_random_programs",
        "programs of 40 steps",
    ),
    Row(
        "ADK's memories against `InMemoryMemoryService`, on each engine",
        f"{ADK}/test_memory.py::test_random_programs",
        "programs of 25 steps",
    ),
    Row(
        "ADK's artifacts against `InMemoryArtifactService`, on each engine",
        f"{ADK}/test_artifact.py::test_random_programs",
        "programs of 80 steps",
    ),
    Row("all bridges in one place, and a user who is forgotten", "tests/bridges/test_one_place.py"),
    Row("all tests of the LangGraph bridge", GRAPH),
    Row("all tests of the OpenAI bridge", OPENAI),
    Row("all tests of the Anthropic bridge", ANTHROPIC),
    Row("all tests of the pydantic-ai bridge", PYDANTIC),
    Row("all tests of the ADK bridge", ADK),
]


class Run(NamedTuple):
    """The outcome of tests: how many of each function ran and passed, and how many programs it made."""

    ran: Counter[str]
    passed: Counter[str]
    examples: dict[str, tuple[int, int]]  # passed, failed


def run_tests(folder: str, soak: int, python: str = sys.executable) -> Run:
    """Run the tests of a folder one after another."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        done = subprocess.run(
            [
                *(python, "-m", "pytest", folder, "-q", f"--junitxml={report}"),
                *("--hypothesis-show-statistics", "-o", "junit_family=xunit1"),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "DGENT_SOAK": str(soak)},
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise SystemExit(done.stdout + done.stderr)
        ran, passed = Counter[str](), Counter[str]()
        for case in ElementTree.parse(report).iter("testcase"):
            test = f"{case.get('file')}::{str(case.get('name')).partition('[')[0]}"
            ran[test] += 1
            bad = [each for each in case if each.tag in ("failure", "error", "skipped")]
            passed[test] += not bad
            if bad:
                print(f"{case.get('name')} {bad[0].tag}: {bad[0].get('message')}", file=sys.stderr)
    return Run(ran, passed, read_examples(done.stdout))


def read_examples(output: str) -> dict[str, tuple[int, int]]:
    """Return how many programs each test made that passed and failed, by hypothesis's statistics."""
    found: dict[str, tuple[int, int]] = {}
    test = ""
    for line in output.splitlines():
        if line.startswith("tests/") and line.endswith(":"):
            test = line[:-1].partition("[")[0]
        elif counts := _EXAMPLES.search(line):
            before = found.get(test, (0, 0))
            found[test] = before[0] + int(counts[1]), before[1] + int(counts[2])
    return found


def join(one: Run, other: Run) -> Run:
    """Return two runs of different tests as one."""
    return Run(one.ran + other.ran, one.passed + other.passed, one.examples | other.examples)


def draw(run: Run) -> str:
    """Return the table in Markdown."""
    lines = ["| Suite or oracle | Test | Cases | Passed |", "|---|---|---|---|"]
    for row in ROWS:
        tests = [
            test for test in run.ran if test == row.test or test.startswith((f"{row.test}::", f"{row.test}/"))
        ]
        ran, passed = sum(run.ran[each] for each in tests), sum(run.passed[each] for each in tests)
        if row.test in run.examples:
            good, bad = run.examples[row.test]
            ran, passed = good + bad, good
        link = f"[`{row.test}`](../../{row.test.partition('::')[0]})"
        lines.append(f"| {row.name} | {link} | {ran * row.each:,} {row.unit} | {passed * row.each:,} |")
    return "\n".join(lines)


def write(table: str, page: Path = PAGE) -> None:
    """Put the table between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    """Run everything, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description="Run the suites and oracles of the bridges.")
    parser.add_argument("--soak", type=int, default=1, help="so many times as many programs")
    adk = Path(sys.prefix) / "adk" / "bin" / "python"  # where `make adk` has it
    parser.add_argument("--adk", default=str(adk), help="the Python that has ADK; without it its rows are 0")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    run = run_tests("tests/bridges", asked.soak)
    if Path(asked.adk).exists():
        run = join(run, run_tests(ADK, asked.soak, asked.adk))
    table = draw(run)
    print(table)
    if asked.write:
        write(table)


if __name__ == "__main__":
    main()
