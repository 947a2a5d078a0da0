"""An agent of OpenAI's SDK on a session with branches: `python examples/openai_agents.py`; needs no key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from dgent.bridges.openai_agents import DgentSession


class Echo(Model):
    """A model that repeats the last message and counts what it was given; a real one needs a key."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        said = f"{input[-1]['content']} (item {len(input)})"
        text = ResponseOutputText(text=said, type="output_text", annotations=[], logprobs=[])
        message = ResponseOutputMessage(
            id="m", type="message", role="assistant", status="completed", content=[text]
        )
        usage = Usage(requests=1, input_tokens=len(input), output_tokens=1, total_tokens=len(input) + 1)
        return ModelResponse(output=[message], usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main() -> None:
    agent, config = Agent("echo", model=Echo()), RunConfig(tracing_disabled=True)
    session = DgentSession("trip", "memory:")  # a URL such as sqlite:///talks.db lasts

    async def ask(question: str) -> None:
        result = await Runner.run(agent, question, session=session, run_config=config)
        await session.store_run_usage(result)
        print(result.final_output)

    for question in ("By train?", "To the coast?"):
        await ask(question)
    await session.create_branch_from_turn(2, "mountains")
    await ask("To the mountains?")
    for branch in await session.list_branches():
        print(branch["branch_id"], branch["message_count"], "items", "*" * branch["is_current"])
    print(await session.get_session_usage())
    await session.aclose()


if __name__ == "__main__":
    asyncio.run(main())
