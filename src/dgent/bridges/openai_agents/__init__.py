"""Sessions of OpenAI's Agents SDK: `pip install 'dgent[openai-agents]'`."""

from dgent.bridges.openai_agents.session import DgentSession

__all__ = ["DgentSession"]
