"""The parts of a context, in the order in which a model reads them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dgent.messages.message import Message
from dgent.messages.part import Part

ORDER = (
    *("instructions", "rules", "core", "pinned", "summaries", "history"),
    *("changes", "activity", "work", "batch"),
)
"""The parts in their order: first those that seldom change, so that calls begin with the same bytes."""

SYSTEM = ("instructions", "rules", "core", "pinned", "summaries")
NOW = ("changes", "activity", "work")
GAP = "\n\n"


class ContextPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part: a text or messages, its tokens and its budget, and the names of what did not fit."""

    name: str
    text: str = ""
    messages: tuple[Message, ...] = ()
    tokens: int = 0
    budget: int = 0
    left_out: tuple[str, ...] = ()


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of an agent for one call of a model.

    `system` and `now` are texts, `history` and `batch` messages: a model reads system, history, now, batch.
    `trust` is the lowest of what is in it. `tools` are the tokens of the tools' schemas, `answer` those kept
    free. `seen` are the versions of blocks that are shown whole.
    """

    agent: str
    parts: tuple[ContextPart, ...]
    window: int
    answer: int
    tools: int = 0
    trust: str = "partner"
    seen: dict[str, int] = {}

    def __getitem__(self, name: str) -> ContextPart:
        """Return a part by its name."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    @property
    def system(self) -> tuple[str, ...]:
        """The texts of the instructions, which are the same until a block or a rule changes."""
        return tuple(text for name in SYSTEM if (text := self[name].text))

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of earlier batches."""
        return self["history"].messages

    @property
    def now(self) -> str:
        """The text of what changes from turn to turn; it stands between the history and the batch."""
        return GAP.join(text for name in NOW if (text := self[name].text))

    @property
    def batch(self) -> tuple[Message, ...]:
        """The messages of the batch itself."""
        return self["batch"].messages

    @property
    def tokens(self) -> int:
        """All tokens, without those kept free for the answer."""
        return self.tools + sum(part.tokens for part in self.parts)

    @property
    def overflow(self) -> int:
        """Tokens by which it is too long for the window, with the answer; 0 when it fits."""
        return max(0, self.tokens + self.answer - self.window)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of all that did not fit, each behind the name of its part."""
        return tuple(f"{part.name}: {name}" for part in self.parts for name in part.left_out)

    def write(self) -> bytes:
        """Return what a model reads, as bytes in order: for comparing two calls."""
        rows = [*self.system, *_rows(self.history), self.now, *_rows(self.batch)]
        return b"\n".join(msgspec.json.encode(row) for row in rows if row)


def _rows(messages: Iterable[Message]) -> list[tuple[str, object]]:
    return [(message.role, mark_parts(message)) for message in messages]


def is_marked(message: Message) -> bool:
    """Check whether a model is shown where a message came from.

    It is not for its own answers: a model would take the mark for a part of them, and write it itself.
    """
    return message.trust != "partner" and message.role in ("user", "tool")


def mark_parts(message: Message) -> tuple[Part, ...]:
    """Return the parts of a message as a model is shown them, the first text marked with a low trust.

    Only an edit changes the trust of a message, so the bytes stay the same.
    """
    if not is_marked(message):
        return message.parts
    mark, parts = f"[origin: {message.trust}]\n", list(message.parts)
    texts = [place for place, part in enumerate(parts) if part.type in ("text", "tool_result")]
    if not texts or parts[texts[0]].type == "text":
        return (Part("text", mark.strip()), *parts)
    for place in texts:
        parts[place] = msgspec.structs.replace(parts[place], text=mark + parts[place].text)
    return tuple(parts)
