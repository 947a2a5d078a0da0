"""The runtime: dgent runs the agent whose memory it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgent.system.lazy import load_on_use

if TYPE_CHECKING:
    from dgent.runtime.agent import AgentAnswer, AgentRuntime
    from dgent.runtime.context.budget import ContextBudget
    from dgent.runtime.hub import EventHub
    from dgent.runtime.limits import Limits
    from dgent.runtime.model.budget import Budget
    from dgent.runtime.model.retry import open_model
    from dgent.runtime.model.script import ScriptedModel
    from dgent.runtime.tool.belt import AskPartner, Decision
    from dgent.runtime.tool.consent import Consent, Consents
    from dgent.runtime.tool.function import function_tool
    from dgent.runtime.tool.rule import Rules, read_rules
    from dgent.runtime.tool.tool import Call, Tool, Toolset

_HOME = {
    "AgentAnswer": "dgent.runtime.agent",
    "AgentRuntime": "dgent.runtime.agent",
    "AskPartner": "dgent.runtime.tool.belt",
    "Budget": "dgent.runtime.model.budget",
    "Call": "dgent.runtime.tool.tool",
    "Consent": "dgent.runtime.tool.consent",
    "Consents": "dgent.runtime.tool.consent",
    "ContextBudget": "dgent.runtime.context.budget",
    "Decision": "dgent.runtime.tool.belt",
    "EventHub": "dgent.runtime.hub",
    "Limits": "dgent.runtime.limits",
    "Rules": "dgent.runtime.tool.rule",
    "ScriptedModel": "dgent.runtime.model.script",
    "Tool": "dgent.runtime.tool.tool",
    "Toolset": "dgent.runtime.tool.tool",
    "function_tool": "dgent.runtime.tool.function",
    "open_model": "dgent.runtime.model.retry",
    "read_rules": "dgent.runtime.tool.rule",
}

__all__ = [
    "AgentAnswer",
    "AgentRuntime",
    "AskPartner",
    "Budget",
    "Call",
    "Consent",
    "Consents",
    "ContextBudget",
    "Decision",
    "EventHub",
    "Limits",
    "Rules",
    "ScriptedModel",
    "Tool",
    "Toolset",
    "function_tool",
    "open_model",
    "read_rules",
]

__getattr__ = load_on_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
