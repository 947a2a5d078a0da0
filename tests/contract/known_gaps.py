"""What an engine is known not to do, with the reason. A skip in this folder without a row here fails."""

from __future__ import annotations

_AUTHOR = "over HTTP the author of a commit is the agent of the token, never another"
_ROOM = "over HTTP no client writes as a room: the server's own rooms prove their rules"
_FUNCTION = "a server does not run the caller's functions"
_STEPS = "a server has none of the caller's steps, so it indexes only records of the caller's own version"
_OWN = "a server searches what it has stored, not versions that the caller alone knows"

GAPS: dict[tuple[str, str], str] = {
    ("remote", f"{contract}Contract.test_{test}"): reason
    for reason, contract, test in (
        (_AUTHOR, "Basic", "the_least_record_comes_back"),
        (_AUTHOR, "History", "history_is_newest_first_and_whole"),
        (_AUTHOR, "Retention", "nothing_is_told_of_commits_that_only_happen_to_be_left"),
        (_AUTHOR, "Retention", "who_committed_goes_with_the_commit"),
        (_ROOM, "Forget", "an_owned_record_is_forgotten_only_by_its_room"),
        (_ROOM, "Lifecycle", "what_was_stored_is_there_after_reopening"),
        (_ROOM, "Schema", "a_room_owns_the_ids_below_its_records"),
        (_ROOM, "Schema", "only_the_owner_writes"),
        (_ROOM, "Schema", "reserved_schemas_have_their_owner_from_the_start"),
        (_ROOM, "Schema", "what_every_cupboard_starts_with_has_its_ids_from_the_start"),
        (_ROOM, "Schema", "what_is_foreign_below_a_room_can_be_deleted"),
        (_ROOM, "Schema", "what_is_in_the_way_of_a_room_is_not_there"),
        (_FUNCTION, "Concurrency", "one_bad_commit_fails_alone"),
        (_FUNCTION, "Error", "an_error_in_the_callers_view_harms_nobody_else"),
        (_FUNCTION, "Search", "neighbours_in_a_thread_lend_their_words"),
        (_FUNCTION, "Search", "only_what_may_be_seen_is_found"),
        (_STEPS, "Index", "a_record_that_cannot_be_upgraded_stays_and_is_found_as_it_is"),
        (_STEPS, "Index", "refs_of_an_older_upgraded_copy_are_not_taken_for_the_newest"),
        (_STEPS, "Index", "refs_of_an_upgraded_copy_are_exact"),
        (_STEPS, "Index", "refs_of_old_records_are_found_during_a_fill"),
        (_STEPS, "Index", "several_versions_in_a_row"),
        (_OWN, "Search", "versions_of_the_caller"),
    )
}
"""(column, "ContractName.test_name") -> why it cannot be done."""
