"""What a table is known not to do as a store of records, with the reason; see `test_contract.py`."""

from __future__ import annotations

_PAST = "a table has no history and no change feed: its rows are as they are now"
_SEQ = "each put of an adapter is a transaction of its own: thousands of rows are for SQL"

GAPS: dict[str, str] = {
    "BasicContract.test_deleting_what_is_not_there_changes_nothing": _PAST,
    "BasicContract.test_get_many_sees_one_moment_in_the_past": _PAST,
    "BasicContract.test_putting_the_same_again_changes_nothing": _PAST,
    "BasicContract.test_one_large_commit_is_one_seq": _SEQ,
}
