"""Import, export and import again: the same cupboard, and the same files."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.cupboard.exchange.folders import FOLDERS, Folder, lines, through, write


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(FOLDERS)
def test_whatever_a_folder_holds_it_comes_out_and_in_as_the_same(folder: Folder) -> None:
    with tempfile.TemporaryDirectory() as base:
        source, first, second = (Path(base, name) for name in ("source", "first", "second"))
        write(source, folder)
        one, done, again = asyncio.run(through(source, first))
        assert (again.added, again.changed, again.seq) == (0, 0, None), "a second import changes nothing"
        two, _, _ = asyncio.run(through(first, second))
        assert lines(first) == lines(second)
        assert one == two
        assert done.dry_run is False
