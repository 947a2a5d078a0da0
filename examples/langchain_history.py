"""The chat history of LangChain on a dgent store, without a key: `python examples/langchain_history.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, messages_from_dict, messages_to_dict
from langgraph.store.base import PutOp

from dgent import ids, sync
from dgent.bridges.langgraph import DgentStore

ALL = 1_000_000


class StoredHistory(BaseChatMessageHistory):
    """The messages of a session as items of a store, in the order of their keys."""

    def __init__(self, store: DgentStore, session: str) -> None:
        self._store, self._namespace = store, ("history", *session.split("/"))

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first."""
        found = sorted(self._store.search(self._namespace, limit=ALL), key=lambda item: item.key)
        return messages_from_dict([item.value for item in found])

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages in one commit."""
        values = messages_to_dict(messages)
        self._store.batch([PutOp(self._namespace, ids.new_id(), value) for value in values])

    def clear(self) -> None:
        """Delete the messages; their history can be undone or forgotten."""
        found = self._store.search(self._namespace, limit=ALL)
        self._store.batch([PutOp(self._namespace, item.key, None) for item in found])


def answer(messages: list[BaseMessage]) -> AIMessage:
    """Answer as a scripted model that has read the history."""
    said = [str(each.content) for each in messages if each.type == "human"]
    return AIMessage(f"You have said: {', '.join(said)}")


def main() -> None:
    """Talk in two sessions, open the store again, search what was said, and clear a session."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'chat.db'}"
        for text in ("hello", "where is the lighthouse?"):
            with DgentStore(url) as store:
                history = StoredHistory(store, "desk/ann")
                asked = HumanMessage(text)
                said = answer([*history.messages, asked])
                history.add_messages([asked, said])
                print(said.content)
        with DgentStore(url) as store:
            StoredHistory(store, "desk/bob").add_messages([HumanMessage("good morning")])
            print([len(StoredHistory(store, name).messages) for name in ("desk/ann", "desk/bob")])
            StoredHistory(store, "desk/bob").clear()
        with sync.open(url) as u:
            print([hit.datum.data["namespace"] for hit in u.search("lighthouse", schema="langgraph.item")])
            print(u.count(schema="langgraph.item"))


if __name__ == "__main__":
    main()
