"""Memories of LangMem's tools on a dgent store, without a key: `python examples/langmem_memory.py`."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of LangMem's own imports
    from langmem import create_manage_memory_tool, create_search_memory_tool

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition

from dgent.bridges.langgraph import DgentSaver, DgentStore

NAMESPACE = ("memories", "{user}")


class State(TypedDict):
    """The state of a conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


def answer(state: State) -> dict[str, Any]:
    """Answer as a scripted model that calls LangMem's tools."""
    last = state["messages"][-1]
    if last.type == "tool":
        return {"messages": [AIMessage(f"Done: {last.content}")]}
    said = str(last.content)
    if said.startswith("Remember that "):
        arguments = {"content": said.removeprefix("Remember that "), "action": "create"}
        call = {"name": "manage_memory", "args": arguments, "id": "1"}
    else:
        call = {"name": "search_memory", "args": {"query": said}, "id": "2"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def main() -> None:
    """Let a graph keep memories of two users, and look at the records and their history."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'agent.db'}"
        with DgentSaver(url) as saver, DgentStore(url) as store:
            tools = [create_manage_memory_tool(NAMESPACE), create_search_memory_tool(NAMESPACE)]
            builder = StateGraph(State)
            builder.add_node("answer", answer)
            builder.add_node("tools", ToolNode(tools))
            builder.add_edge(START, "answer")
            builder.add_conditional_edges("answer", tools_condition)
            builder.add_edge("tools", "answer")
            graph: Any = builder.compile(checkpointer=saver, store=store)

            def ask(user: str, text: str) -> str:
                config = {"configurable": {"thread_id": f"chat/{user}", "user": user, "user_id": user}}
                asked = {"messages": [HumanMessage(text)]}
                return str(graph.invoke(asked, config)["messages"][-1].content)

            print(ask("ann", "Remember that Ann sails on Sundays").split(" memory ")[0])
            print("Ann sails on Sundays" in ask("ann", "sails"), "Ann" in ask("bob", "sails"))
            (kept,) = store.search(("memories", "ann"))
            changed = {**kept.value, "content": "Ann sails on Mondays"}
            store.put(kept.namespace, kept.key, changed)
            versions = [item for item in store.history(kept.namespace, kept.key) if item]
            print([item.value["content"] for item in versions])
            store.undo(kept.namespace, kept.key)
            print(store.search(("memories", "ann"))[0].value["content"])


if __name__ == "__main__":
    main()
