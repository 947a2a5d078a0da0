"""A chat whose state lasts, is forked and taken back: `python examples/stateful_chat.py`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import dgent
from dgent.flow import StateFunctor


@dataclass(frozen=True)
class Chat:
    """What was said so far."""

    history: tuple[str, ...] = ()


def answer(message: str, state: Chat) -> tuple[str, Chat]:
    """Answer a message; a model would be asked here."""
    said = sum(1 for line in state.history if line.startswith("you: "))
    reply = f"that was your message number {said + 1}"
    return reply, Chat((*state.history, f"you: {message}", f"bot: {reply}"))


async def main() -> None:
    """Chat, try another turn in a fork, and go back a step."""
    async with dgent.open("memory:") as u:
        u.register(dgent.Schema("chat", contract=Chat))
        chat = StateFunctor(Chat, u, namespace="chat with Ann").lift_logic(answer)
        for message in ("hello", "how are you?", "tell me a secret"):
            print(f"> {message}\n{await chat.invoke(message)}")

        other = await chat.fork("another ending", rev=2)
        print(f"in a fork: {await other.invoke('tell me a joke')}")

        await chat.resume(2)
        print(f"back at step 2: {await chat.invoke('good night')}")
        for version in reversed(await chat.history()):
            print(f"step {version.rev}: {len(version.datum.data['history'])} lines")


asyncio.run(main())
