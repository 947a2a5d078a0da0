"""The checkpoints of LangGraph's threads as records of a place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from dgent.bridges.langgraph import record, thread
from dgent.bridges.langgraph.checkpoint import NewCheckpoint, whole
from dgent.bridges.langgraph.content import Contents, KnownContents, join_value
from dgent.bridges.langgraph.record import StoredCheckpoint, StoredValue, StoredWrite, StoredWrites
from dgent.bridges.langgraph.thread import Found
from dgent.bridges.placed import Place, Placed
from dgent.errors import InputError
from dgent.model.datum import Datum

PAGE = 50
MAX_PREVIEW = 160  # characters
STRATEGIES = ("keep_latest", "delete")
DELTAS = "counters_since_delta_snapshot"


class DgentSaver(Placed, BaseCheckpointSaver[Any]):
    """Keeps the checkpoints of graphs in a dgent store: `builder.compile(checkpointer=DgentSaver(url))`.

    `place` is a URL, an open universe, or a handle of `dgent.sync.anywhere`. Every call has its blocking and
    its async form, for any event loop. Values are stored once and lists in parts, so that a step costs what
    it changed. Nothing is unpickled.
    """

    def __init__(self, place: Place, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._known = KnownContents()
        self._settle(place, record.CHECKPOINT, record.WRITES, record.CONTENT)

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Return the version after one; those that another saver made as texts stay texts."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}"
        return 1 if current is None else int(current) + 1

    # -- one checkpoint -------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest of its namespace."""
        return self._tuple_of(
            self.place.run(thread.find, *_name_of(config), get_checkpoint_id(config), self._known)
        )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest of its namespace."""
        found = await self.place.arun(thread.find, *_name_of(config), get_checkpoint_id(config), self._known)
        return self._tuple_of(found)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint below the one that the configuration names."""
        new = self._new(config, checkpoint, metadata, new_versions)
        self.place.run(thread.put_checkpoint, new.make, new.parent, new.contents)
        return new.config  # type: ignore[no-any-return]

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint below the one that the configuration names."""
        new = self._new(config, checkpoint, metadata, new_versions)
        await self.place.arun(thread.put_checkpoint, new.make, new.parent, new.contents)
        return new.config  # type: ignore[no-any-return]

    def _new(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> NewCheckpoint:
        kept: dict[str, Any] = dict(get_serializable_checkpoint_metadata(config, metadata))
        preview = _preview(checkpoint, new_versions) if isinstance(self.serde, JsonPlusSerializer) else ""
        above, dump = get_checkpoint_id(config), self.serde.dumps_typed
        return NewCheckpoint(dump, _name_of(config), above, dict(checkpoint), kept, new_versions, preview)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task at a checkpoint."""
        if writes:
            self.place.run(thread.put_writes, *self._writes_of(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task at a checkpoint."""
        if writes:
            await self.place.arun(thread.put_writes, *self._writes_of(config, writes, task_id, task_path))

    def _writes_of(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> tuple[str, str, str, StoredWrites]:
        name, namespace = _name_of(config)
        made: dict[int, StoredWrite] = {}
        for at, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, at)
            made[index] = StoredWrite(index, channel, *whole(self.serde.dumps_typed(value)))
        checkpoint = record.line_prefix(name, namespace) + config["configurable"]["checkpoint_id"]
        return checkpoint, name, namespace, StoredWrites(task, path, list(made.values()))

    # -- many -----------------------------------------------------------------------------

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first: of a thread, of one of its namespaces, or of all threads."""
        datums = self.place.run(thread.find_all, *_range_of(config, before), None if filter else limit)
        for some in _pages(self._select(datums, filter, limit)):
            for found in self.place.run(thread.complete, some, self._known):
                yield self._load(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first: of a thread, of one of its namespaces, or of all threads."""
        datums = await self.place.arun(thread.find_all, *_range_of(config, before), None if filter else limit)
        for some in _pages(self._select(datums, filter, limit)):
            for found in await self.place.arun(thread.complete, some, self._known):
                yield self._load(found)

    def _select(
        self, datums: Sequence[Datum], filter: dict[str, Any] | None, limit: int | None
    ) -> Iterator[Datum]:
        left = len(datums) if limit is None else limit
        for datum in datums:
            if left <= 0:
                return
            if filter:
                metadata = self.serde.loads_typed(record.read_checkpoint(datum).metadata)
                if not all(metadata.get(key) == value for key, value in filter.items()):
                    continue
            left -= 1
            yield datum

    # -- upkeep ---------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        self._known.clear()
        self.place.run(thread.delete_thread, str(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        self._known.clear()
        await self.place.arun(thread.delete_thread, str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that runs made."""
        self._known.clear()
        self.place.run(thread.delete_runs, [str(each) for each in run_ids])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that runs made."""
        self._known.clear()
        await self.place.arun(thread.delete_runs, [str(each) for each in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything of a thread to another one."""
        self.place.run(thread.copy_thread, str(source_thread_id), str(target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything of a thread to another one."""
        await self.place.arun(thread.copy_thread, str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each namespace, or with "delete" all of them."""
        _check_strategy(strategy)
        for each in thread_ids:
            if strategy == "delete":
                self.delete_thread(each)
            else:
                self._known.clear()
                self.place.run(thread.prune, str(each), self._delta_channels)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each namespace, or with "delete" all of them."""
        _check_strategy(strategy)
        for each in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(each)
            else:
                self._known.clear()
                await self.place.arun(thread.prune, str(each), self._delta_channels)

    def _delta_channels(self, stored: StoredCheckpoint) -> Sequence[str]:
        return [*self.serde.loads_typed(stored.metadata).get(DELTAS, ())]

    # -- delta channels -------------------------------------------------------------------

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return for each channel the writes since its nearest stored value, and that value."""
        if not channels:
            return {}
        wanted = *_name_of(config), get_checkpoint_id(config), tuple(channels)
        return self._histories(channels, *self.place.run(thread.find_history, *wanted))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return for each channel the writes since its nearest stored value, and that value."""
        if not channels:
            return {}
        wanted = *_name_of(config), get_checkpoint_id(config), tuple(channels)
        return self._histories(channels, *await self.place.arun(thread.find_history, *wanted))

    def _histories(
        self,
        channels: Sequence[str],
        writes: Mapping[str, Sequence[Sequence[StoredWrites]]],
        seeds: Mapping[str, StoredValue],
        contents: Contents,
    ) -> dict[str, DeltaChannelHistory]:
        found: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            steps = [self._load_writes(step, channel) for step in reversed(writes[channel])]
            found[channel] = {"writes": [write for step in steps for write in step]}
            if channel in seeds:
                found[channel]["seed"] = join_value(seeds[channel], contents, self.serde.loads_typed)
        return found

    # -- values ---------------------------------------------------------------------------

    def _tuple_of(self, found: Found | None) -> CheckpointTuple | None:
        return None if found is None else self._load(found)

    def _load(self, found: Found) -> CheckpointTuple:
        stored, load = found.checkpoint, self.serde.loads_typed
        checkpoint = load(stored.rest)
        checkpoint["channel_versions"] = {name: value.version for name, value in stored.values.items()}
        checkpoint["channel_values"] = {
            name: join_value(value, found.contents, load)
            for name, value in stored.values.items()
            if value.kind != "none"
        }
        return CheckpointTuple(
            stored.config,  # type: ignore[arg-type]
            checkpoint,
            load(stored.metadata),
            stored.parent_config,  # type: ignore[arg-type]
            [*self._load_writes(found.writes)],
        )

    def _load_writes(
        self, found: Sequence[StoredWrites], channel: str | None = None
    ) -> Sequence[PendingWrite]:
        """Return writes in the order in which a step applies them."""
        loaded = [
            (writes_sort_key(each.path, each.task, write.index), each.task, write)
            for each in found
            for write in each.writes
            if channel is None or write.channel == channel
        ]
        loaded.sort(key=lambda entry: entry[0])
        load = self.serde.loads_typed
        return [(task, write.channel, load((write.type, write.data))) for _, task, write in loaded]


def _preview(checkpoint: Checkpoint, new_versions: ChannelVersions) -> str:
    """Return the beginning of the newest message, for people."""
    for name in new_versions:
        value = checkpoint["channel_values"].get(name)
        if isinstance(value, list) and value:
            last = value[-1]
            text = last.get("content") if isinstance(last, dict) else getattr(last, "content", None)
            if isinstance(text, str) and text:
                return text[:MAX_PREVIEW]
    return ""


def _name_of(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread and the namespace that a configuration names."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns", "") or ""


def _range_of(
    config: RunnableConfig | None, before: RunnableConfig | None
) -> tuple[str | None, str | None, str | None, str | None]:
    """Return thread, namespace and id of the checkpoints to list, and the id that they are below."""
    limit = get_checkpoint_id(before) if before else None
    if not config:
        return None, None, None, limit
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns"), get_checkpoint_id(config), limit


def _pages(datums: Iterator[Datum]) -> Iterator[Sequence[Datum]]:
    page: list[Datum] = []
    for datum in datums:
        page.append(datum)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def _check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise InputError(
            f"{strategy!r} is not a valid strategy (use keep_latest or delete)", field="strategy"
        )
