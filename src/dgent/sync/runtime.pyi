"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from dgent.config.mcp import McpServer
from dgent.messages.message import BatchInfo
from dgent.messages.part import Content
from dgent.messages.strategy import Strategy
from dgent.runtime.agent import AgentAnswer
from dgent.runtime.context.budget import ContextBudget
from dgent.runtime.context.build import ContextBuilder
from dgent.runtime.context.part import AgentContext
from dgent.runtime.event import Event
from dgent.runtime.hub import EventHub
from dgent.runtime.limits import Limits
from dgent.runtime.model.call import Model, ModelCall, Settings
from dgent.runtime.model.resolve import ModelSpec
from dgent.runtime.model.retry import Retry, RetryingModel
from dgent.runtime.tool.belt import AskPartner, GivenTool, ToolBelt
from dgent.runtime.tool.consent import Consents
from dgent.runtime.tool.mcp_servers import McpServers
from dgent.runtime.tool.own import USUAL
from dgent.runtime.tool.rule import Rule, Rules
from dgent.runtime.turn import AgentTurn
from dgent.sync import Universe
from dgent.sync.messages import Inbox, Messages
from dgent.sync.stream import Stream
from dgent.universe.gate import Principal
from dgent.universe.lease import LEASE_S

__all__ = ["AgentRuntime"]

class AgentRuntime:
    """One agent at work, on a handle that may do everything.

    `tools` are functions, tools and sources beside its own ones, which `own` names; `servers` are MCP
    servers, started with the first turn; `ask` asks the partner for consent at this door. Every event of
    every turn is published to `hub`. When the history is longer than its budget, older batches are archived
    after the turn, as `compress` says; the model sums them up.
    """

    @property
    def universe(self) -> Universe: ...
    @property
    def partner(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def hub(self) -> EventHub: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def inbox(self) -> Inbox: ...
    @property
    def consents(self) -> Consents: ...
    @property
    def builder(self) -> ContextBuilder: ...
    @property
    def belt(self) -> ToolBelt: ...
    @property
    def servers(self) -> McpServers: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def model(self) -> Model: ...
    def __init__(
        self,
        universe: Universe,
        agent: str,
        *,
        model: ModelSpec,
        tools: Sequence[GivenTool] = (),
        servers: Sequence[McpServer] = (),
        rules: Sequence[Rule] = (),
        instructions: str | None = None,
        budget: ContextBudget | None = None,
        limits: Limits | None = None,
        ask: AskPartner | None = None,
        hub: EventHub | None = None,
        own: Sequence[str] = USUAL,
        settings: Settings | None = None,
        retry: Retry | None = None,
        compress: Strategy | str | None = "recursive_summary",
    ) -> None: ...
    def __enter__(self) -> AgentRuntime: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def close(self) -> None:
        """End the turns that run, so that they can be resumed, and close the model."""

    def respond(
        self,
        message: Content,
        *,
        caller: Principal | None = None,
        origin: str = "",
        key: str | None = None,
        session: str = "",
        type: str = "user_request",
    ) -> Stream[Event]:
        """Answer a message; yields events while it works. Closing the generator ends the turn, durably.

        `caller` is who says it, by default the partner. With a `key` a message is answered once: the same key
        again goes on with its batch, or repeats the answer without asking the model.
        """

    def run(
        self,
        message: Content,
        *,
        caller: Principal | None = None,
        origin: str = "",
        key: str | None = None,
        session: str = "",
        type: str = "user_request",
    ) -> AgentAnswer:
        """Answer a message as `respond` does, and return the answer alone; raises what made the turn fail."""

    def resume(self, batch: str | None = None) -> Stream[Event]:
        """Go on with a batch that was interrupted, or with all of them, the oldest first.

        Nothing is paid or done twice: an answer that was stored is not asked for again, a call that ended is
        not made again, and one whose outcome is unknown is asked for.
        """

    def interrupted(self) -> list[BatchInfo]:
        """Return the batches to resume, the oldest first: left open by a stop, or interrupted last."""

    def interrupt(self, batch: str | None = None) -> None:
        """End a turn that runs, or all of them: what is not durable is dropped, and it can be resumed."""

    @property
    def running(self) -> tuple[str, ...]:
        """The batches that are worked on here."""

    def forget_turn(self, turn: AgentTurn) -> None:
        """Drop a turn that has ended."""

    def vouch(self, label: str) -> None:
        """Trust a block as it is now, whoever wrote to it: contexts that show it are not lowered for it."""

    def work(self, *, wait_s: float = 0.0, lease_s: float = LEASE_S) -> AgentAnswer | None:
        """Take a message from the agent's queue and answer it; None when none comes in time.

        It is handled once: the answer and the end of the message are one commit. One that fails is put back,
        and raises what made it fail.
        """

    def serve(self, *, lease_s: float = LEASE_S) -> None:
        """Answer what comes into the queue, until it is cancelled; failures are events and go on."""

    def send(self, to: str, text: Content, *, trust: str = "partner", key: str | None = None) -> str:
        """Send a message to another agent's queue; return its id. TooSoon if one was sent just now."""

    def open_model(self) -> RetryingModel:
        """Return the model for one turn, with retries and a budget of its own."""

    def build_call(self, context: AgentContext, tools: Sequence[Mapping[str, Any]]) -> ModelCall:
        """Return the request of a model for a context, with the bytes of its images."""

    def context(self, message: str = "") -> AgentContext:
        """Return what the next call of the model would be shown, with its parts."""

    def compress_later(self, context: AgentContext) -> None:
        """Archive old batches in the background, where the history is longer than its budget."""
