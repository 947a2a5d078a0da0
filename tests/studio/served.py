"""The studio as people start it: `dgent studio` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from tests.command import python

START = """
import sys
from datetime import datetime
from dgent import clock
from dgent.doors.cli.main import main
moment = sys.argv.pop(1)
if moment:
    at = datetime.fromisoformat(moment)
    clock.now, clock.now_us = lambda: at, lambda: clock.to_us(at)
main()
"""


def run(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run something async on a thread of its own: a browser has the loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()


def dgent(*words: str, home: str) -> str:
    """Run the command line; returns what it prints."""
    command = [python(), "-c", START, "", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, env=_home(home), check=True).stdout


def _home(home: str | None) -> dict[str, str]:
    places = {} if home is None else {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
    return {**os.environ, **places}


def studio(
    *options: str, moment: datetime | None = None, home: str | None = None
) -> AbstractContextManager[str]:
    """Run the studio, with its clock stopped at a moment if given; yields its link, which works once."""
    return start(*options, "studio", "--no-browser", moment=moment, home=home)


@contextmanager
def start(*words: str, moment: datetime | None = None, home: str | None = None) -> Iterator[str]:
    """Run a command that serves, until it is interrupted; yields the address that it prints."""
    at = "" if moment is None else moment.isoformat()
    command = [python(), "-c", START, at, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_home(home))
    assert process.stdout is not None
    try:
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the studio did not start: {said}")
            said += line
        found = re.search(r"http://\S+", said)
        assert found is not None
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()
