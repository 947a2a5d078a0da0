"""`python -m bench`: one command, one table."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bench import table
from bench.acp import acp
from bench.blob import blob
from bench.blocks import blocks
from bench.bridges import bridges
from bench.calls import count_calls
from bench.cupboard import cupboard
from bench.flow import flow
from bench.folders import folders
from bench.footprint import footprint
from bench.fresh import fresh
from bench.growth import disk, growth
from bench.http import http
from bench.locomo import locomo
from bench.mcp import mcp
from bench.measure import Growth, Row, say
from bench.messages import messages
from bench.pauses import pauses
from bench.plan import QUICK, Plan, parse_sizes
from bench.postgres import postgres
from bench.processes import processes
from bench.puts import many, one_by_one, together
from bench.reads import gets, scans, tallies
from bench.relational import relational
from bench.runtime import runtime
from bench.saver import saver
from bench.search import growth as search_growth
from bench.search import search
from bench.stores import Stores
from bench.studio import studio
from bench.tables import tables
from bench.telemetry import telemetry
from bench.vectors import vectors

# In this order: `growth` writes into the stores that the others only read.
WORK: dict[str, Callable[[Plan, Stores], Awaitable[list[Any]]]] = {
    "put": one_by_one,
    "together": together,
    "many": many,
    "processes": processes,
    "get": gets,
    "query": scans,
    "tally": tallies,
    "fresh": fresh,
    "pauses": pauses,
    "jsonl": folders,
    "postgres": postgres,
    "cupboard": cupboard,
    "blocks": blocks,
    "messages": messages,
    "flow": flow,
    "runtime": runtime,
    "langgraph": saver,
    "bridges": bridges,
    "blob": blob,
    "relational": relational,
    "tables": tables,
    "search": search,
    "conversations": search_growth,
    "locomo": locomo,
    "mcp": mcp,
    "acp": acp,
    "http": http,
    "studio": studio,
    "vectors": vectors,
    "telemetry": telemetry,
    "calls": count_calls,
    "footprint": footprint,
    "disk": disk,
    "growth": growth,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    options = _options(arguments)
    plan = QUICK if options.quick else Plan()
    if options.rows:
        plan = dataclasses.replace(plan, sizes=options.rows, paused=options.rows[-1])
    chosen = [name for name in WORK if not options.only or name in options.only]
    rows, grown = asyncio.run(_run(plan, chosen))
    print(table.as_json(rows, grown) if options.json else table.text(rows, grown))
    return 0


async def _run(plan: Plan, chosen: list[str]) -> tuple[list[Row], list[Growth]]:
    rows: list[Row] = []
    grown: list[Growth] = []
    with Stores() as stores:
        for name in chosen:
            say(name)
            for found in await WORK[name](plan, stores):
                (grown if isinstance(found, Growth) else rows).append(found)
    return rows, grown


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=WORK, metavar="NAME", help=", ".join(WORK))
    parser.add_argument("--rows", type=parse_sizes, metavar="100k,1M", help="the sizes of the stores")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; a minute for a group")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
