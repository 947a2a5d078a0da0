"""Near commands: what somebody meant who wrote a command that does not exist."""

from __future__ import annotations

from dgent.system.near import ask, find_near
from dgent.verbs.index import MODULES, NOUNS, SHORT

MEANT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("create", "new", "make", "add"), ("remember", "crumb add", "block create")),
    **dict.fromkeys(("save", "store", "put", "insert", "write", "note"), ("remember",)),
    **dict.fromkeys(("delete", "remove", "rm", "del"), ("data delete",)),
    **dict.fromkeys(("close", "finish", "complete", "resolve"), ("done",)),
    **dict.fromkeys(("find", "grep", "query"), ("search", "recall")),
    **dict.fromkeys(("list", "ls"), ("recall", "crumb list", "block list")),
    **dict.fromkeys(("show", "view", "cat", "read"), ("get", "crumb get", "block get")),
    **dict.fromkeys(("update", "edit", "set", "change"), ("remember", "crumb set", "block edit")),
    **dict.fromkeys(("revert", "rollback", "reset"), ("undo", "block rollback")),
    **dict.fromkeys(("claim", "assign"), ("take",)),
    **dict.fromkeys(("branch", "clone"), ("constellation fork", "constellation copy")),
    **dict.fromkeys(("check", "verify", "fsck"), ("doctor",)),
    **dict.fromkeys(("info", "stats"), ("status",)),
    "merge": ("constellation merge",),
    "commit": ("get-commit",),
    "issue": ("crumb",),
    "memory": ("block",),
    "settings": ("config",),
}
"""Words of other programs, and the commands that do it here."""


def find_command(word: str, noun: str | None = None) -> str:
    """Return a hint on the commands that a word means, at the top or below a noun; empty for none."""
    if noun is not None:
        own = [id.partition(".")[2] for id in MODULES if id.startswith(f"{noun}.")]
        last = [each.rpartition(" ")[2] for each in MEANT.get(word, ())]
        return ask([each for each in last if each in own][:1] or find_near(word, own, 1))
    if word in MEANT:
        return ask(MEANT[word])
    near = find_near(word, [*SHORT, *NOUNS], 1)
    if near:
        return ask(near)
    # The user may know the verb and not its noun.
    verbs = {id.partition(".")[2]: id.replace(".", " ") for id in reversed(MODULES)}
    return ask(verbs[each] for each in ([word] if word in verbs else find_near(word, verbs, 1)))
