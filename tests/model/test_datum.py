"""What a datum refuses."""

from __future__ import annotations

import pytest

from dgent.errors import InputError
from dgent.model.datum import Datum


@pytest.mark.parametrize("tags", [[[]], [{}], "letters", 5, [1], [None]])
def test_tags_that_are_no_texts(tags: object) -> None:
    with pytest.raises(InputError, match="tags"):
        Datum(tags=tags).check()  # type: ignore[arg-type]
