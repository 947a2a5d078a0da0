"""A LangGraph agent on one dgent store, without a key: `python examples/langgraph_agent.py`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt

from dgent import sync
from dgent.bridges.langgraph import DgentSaver, DgentStore


class State(TypedDict):
    """The state of a conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


def answer(state: State, *, store: BaseStore) -> dict[str, Any]:
    """Answer as a scripted model: remember what the user likes, if a person allows it."""
    said = str(state["messages"][-1].content)
    if said.startswith("I like "):
        if interrupt(f"remember {said!r}?") == "yes":
            store.put(("users", "ann"), "likes", {"text": said})
        return {"messages": [AIMessage("Noted.")]}
    known = store.get(("users", "ann"), "likes")
    return {
        "messages": [AIMessage(f"You said: {known.value['text']}" if known else "I do not know you yet.")]
    }


def main() -> None:
    """Talk in two threads, go back in time, and look at the records."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'agent.db'}"
        with DgentSaver(url) as saver, DgentStore(url) as store:
            builder = StateGraph(State)
            builder.add_node("answer", answer)
            builder.add_edge(START, "answer")
            graph = builder.compile(checkpointer=saver, store=store)
            first: Any = {"configurable": {"thread_id": "monday"}}
            second: Any = {"configurable": {"thread_id": "tuesday"}}

            def ask(text: str, config: Any) -> Any:
                return graph.invoke({"messages": [HumanMessage(text)]}, config)

            print(ask("Who am I?", first)["messages"][-1].content)
            print(ask("I like short answers", first)["__interrupt__"][0].value)
            print(graph.invoke(Command(resume="yes"), first)["messages"][-1].content)
            print(ask("Who am I?", second)["messages"][-1].content)
            history = list(graph.get_state_history(first))
            print(f"monday has {len(history)} checkpoints")
            store.put(("users", "ann"), "likes", {"text": "I like long answers"})
            store.undo(("users", "ann"), "likes")
            print([item.value["text"] for item in store.history(("users", "ann"), "likes") if item])
        with sync.open(url) as u:
            hits = u.search("short answers", schema="langgraph.checkpoint")
            print("found in the thread", hits[0].datum.data["thread"])


if __name__ == "__main__":
    main()
