"""A conversation is remembered turn by turn, and searched weeks later: `python examples/conversation.py`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dgent


@dataclass(frozen=True)
class Turn:
    """One thing that somebody said."""

    speaker: str
    text: str
    session: str


# Turns of one session lend each other their words, and all are found by their dates.
TURN = dgent.Schema("turn", contract=Turn, text=("speaker", "text"), thread="session")

TALKS = {
    datetime(2026, 5, 4, 18, 30, tzinfo=UTC): """\
Ann: How was your weekend?
Joe: Busy. We picked up the puppy on Saturday.
Ann: Oh! What is she called?
Joe: Biscuit. The kids insisted.
Ann: Does she sleep at all?
Joe: Only when we do not.""",
    datetime(2026, 5, 21, 9, 0, tzinfo=UTC): """\
Ann: You look tired.
Joe: I was up all night, the boiler broke down.
Ann: Again? Who repairs it?
Joe: Somebody from Hansen's, tomorrow at eight.
Ann: They did ours in March. Ask for the warranty.""",
    datetime(2026, 6, 2, 12, 15, tzinfo=UTC): """\
Ann: Where do you go this summer?
Joe: To my sister's, near Bergen. Three weeks.
Ann: With the dog?
Joe: Of course. She has never seen the sea.""",
}

QUESTIONS = (
    "What is the name of Joe's puppy?",
    "Who repairs the boiler?",
    "What did they say on June 2?",
    "summer near Bergen",
)


async def main() -> None:
    async with dgent.open("memory:") as u:
        u.register(TURN)
        for began, talk in TALKS.items():
            for place, line in enumerate(talk.splitlines()):
                speaker, text = line.split(": ", 1)
                turn = Turn(speaker, text, session=f"{began:%Y-%m-%d}")
                await u.remember(turn, created_at=began + timedelta(minutes=place))
        for question in QUESTIONS:
            print(question)
            for hit in await u.search(question, k=3):
                print(
                    f"  {hit.score:.2f}  {hit.record.created_at:%b %d}  {hit.value.speaker}: {hit.value.text}"
                )
        only_joe = await u.collection(Turn).search("puppy name", where={"speaker": "Joe"}, k=2)
        print("Joe:", " / ".join(hit.value.text for hit in only_joe))


asyncio.run(main())
