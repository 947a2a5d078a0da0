"""LangGraph on a dgent store: checkpoints, long-term memory and cache. `pip install 'dgent[langgraph]'`."""

from importlib.util import find_spec

from dgent.errors import Unsupported

if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
    raise Unsupported("langgraph-checkpoint is not installed", hint="pip install 'dgent[langgraph]'")

from dgent.bridges.langgraph.cache import DgentCache
from dgent.bridges.langgraph.item import ItemChange, VersionedItem
from dgent.bridges.langgraph.saver import DgentSaver
from dgent.bridges.langgraph.store import DgentStore

__all__ = ["DgentCache", "DgentSaver", "DgentStore", "ItemChange", "VersionedItem"]
