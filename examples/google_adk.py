"""An agent of Google's ADK on its three services: `python examples/google_adk.py`; needs no key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools import ToolContext
from google.genai import types

import dgent
from dgent.bridges.adk import DgentArtifactService, DgentMemoryService, DgentSessionService, forget_user


class Keeper(BaseLlm):
    """A model that writes down what it is told, then says so; a real one needs a key."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[-1]
        part = types.Part(text="It is in the log.")
        if last.text:
            part = types.Part(function_call=types.FunctionCall(name="log", args={"text": last.text}))
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


async def log(text: str, tool_context: ToolContext) -> str:
    """Write a line into the log."""
    tool_context.state["user:lines"] = tool_context.state.get("user:lines", 0) + 1
    return f"version {await tool_context.save_artifact('user:log.txt', types.Part(text=text))}"


async def main() -> None:
    async with dgent.open("memory:") as u:  # a URL such as sqlite:///agent.db lasts
        sessions, memories = DgentSessionService(u), DgentMemoryService(u)
        artifacts = DgentArtifactService(u)
        runner = Runner(
            app_name="lighthouse",
            agent=LlmAgent(name="keeper", model=Keeper(model="scripted"), tools=[log]),
            session_service=sessions,
            memory_service=memories,
            artifact_service=artifacts,
            auto_create_session=True,
        )
        for day, text in (("monday", "The lamp is broken."), ("tuesday", "The lamp works again.")):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(user_id="ann", session_id=day, new_message=message):
                if event.is_final_response():
                    print(f"{day}: {event.content.parts[0].text}")
            session = await sessions.get_session(app_name="lighthouse", user_id="ann", session_id=day)
            await memories.add_session_to_memory(session)

        ann = {"app_name": "lighthouse", "user_id": "ann"}
        print("lines:", (await sessions.get_user_state(**ann))["lines"])
        print("versions of the log:", await artifacts.list_versions(**ann, filename="user:log.txt"))
        found = await memories.search_memory(**ann, query="broken lamp")
        print("remembered:", found.memories[0].content.parts[0].text)
        print("forgotten records:", await forget_user(u, **ann))
        await runner.close()


if __name__ == "__main__":
    asyncio.run(main())
