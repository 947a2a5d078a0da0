"""What worker processes do with verbs; each function is one job, named by the test that starts it."""

from __future__ import annotations

import os
import sys
import tempfile

from dgent.doors.cli.main import main
from dgent.verbs.store import constellation as _constellation  # noqa: F401 - so that no worker imports it
from tests.fault.nursery import say


def run(words: list[str], env: dict[str, str]) -> None:
    """Run `dgent` with words; say its exit code, and the end of what it wrote to standard error."""
    os.environ.clear()
    os.environ.update(env)
    told, code = os.dup(1), 0
    with tempfile.TemporaryFile() as err:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(err.fileno(), 2)
        try:
            sys.argv = ["dgent", *words]
            main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(told, 1)
        err.seek(0)
        say([code, err.read()[-2000:].decode()])
