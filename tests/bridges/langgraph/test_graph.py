"""Real graphs on the saver: interrupts, subgraphs, time travel and forks, blocking and async."""

from __future__ import annotations

from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from dgent.bridges.langgraph import DgentSaver
from tests.bridges.langgraph.steps import config_for


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], add]
    approved: bool


def think(state: State) -> Any:
    count = len(state["messages"])
    return {"messages": [AIMessage(f"answer {count}", id=f"a{count}")], "notes": [f"thought {count}"]}


def approve(state: State) -> Any:
    return {"approved": interrupt("may I?") == "yes"}


def look(state: State) -> Any:
    return {"notes": ["looked"]}


def make_graph(saver: Any) -> Any:
    inner = StateGraph(State)
    inner.add_node("look", look)
    inner.add_node("approve", approve)
    inner.add_edge(START, "look")
    inner.add_edge("look", "approve")
    outer = StateGraph(State)
    outer.add_node("think", think)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "think")
    outer.add_edge("think", "inner")
    outer.add_edge("inner", END)
    return outer.compile(checkpointer=saver)


def ask(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=text)]}


async def play(saver: Any) -> list[Any]:
    """Run a conversation with an interrupt in a subgraph, go back, and fork; return what was seen."""
    graph, config = make_graph(saver), config_for("chat")
    seen: list[Any] = [(await graph.ainvoke(ask("one"), config))["__interrupt__"][0].value]
    paused = await graph.aget_state(config, subgraphs=True)
    seen += [paused.next, paused.tasks[0].state.values["notes"]]
    seen.append(await graph.ainvoke(Command(resume="yes"), config))
    seen.append((await graph.ainvoke(ask("two"), config))["messages"])
    seen.append(await graph.ainvoke(Command(resume="no"), config))
    history = [each async for each in graph.aget_state_history(config)]
    seen.append([(each.metadata["step"], each.metadata["source"], each.next) for each in history])
    then = next(each for each in history if each.values.get("approved") and not each.next)
    fork = await graph.aupdate_state(then.config, {"notes": ["forked"]})
    seen.append((await graph.aget_state(fork)).values["notes"])
    seen.append((await graph.ainvoke(ask("three"), fork))["messages"])
    seen.append(len([each async for each in graph.aget_state_history(config)]))
    return seen


async def test_a_graph_runs_as_on_the_saver_of_the_framework(saver: DgentSaver) -> None:
    assert await play(saver) == await play(InMemorySaver())


def test_a_graph_goes_on_in_another_process_of_the_same_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with DgentSaver(url) as saver:
        assert "__interrupt__" in make_graph(saver).invoke(ask("one"), config_for("chat"))
    with DgentSaver(url) as saver:
        graph = make_graph(saver)
        done = graph.invoke(Command(resume="yes"), config_for("chat"))
        assert done["approved"] is True
        assert done["notes"] == ["thought 1", "thought 1", "looked"]
        assert len(list(graph.get_state_history(config_for("chat")))) == 4
