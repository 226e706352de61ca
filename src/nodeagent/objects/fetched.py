"""The Get and Cache strategies: objects are asked for when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api.node import Node
from nodeagent.kube import ApiError, KubeClient
from nodeagent.kube.errors import KubeError
from nodeagent.kube.objects import is_newer
from nodeagent.model import SyncError
from nodeagent.objects.refs import ObjectRef, ObjectValue
from nodeagent.objects.strategy import TYPES, Notify, ignore, not_registered, path_of

DEFAULT_TTL: Final = 60.0
"""Seconds for which a cached object counts without being asked for again."""
TTL_ANNOTATION: Final = "node.alpha.kubernetes.io/ttl"


def ttl_of(node: Node | None) -> float:
    """Seconds for which objects count, as the cluster tells this node."""
    text = node.metadata.annotations.get(TTL_ANNOTATION, "") if node is not None else ""
    return float(text) if text.isascii() and text.isdigit() else DEFAULT_TTL


async def fetch(
    client: KubeClient, ref: ObjectRef, *, from_cache: bool = False
) -> ObjectValue | None:
    """Ask the API server for an object; None when there is none.

    Raises:
        KubeError: it could not be asked.
    """
    query = {"resourceVersion": "0"} if from_cache else None
    kind: type[Any] = TYPES[ref.kind]
    try:
        found: ObjectValue = await client.get(path_of(ref), kind, query=query)
    except ApiError as error:
        if error.not_found:
            return None
        raise
    return found


class _OnRequest:
    """What both have in common: nothing goes on between reads."""

    def __init__(self) -> None:
        self.notify: Notify = ignore

    def retry_now(self) -> None:
        """Nothing waits."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Nothing to do."""
        task_status.started()
        await anyio.sleep_forever()


class LiveObjects(_OnRequest):
    """Asks for every object each time.

    Args:
        client: asks the API server.
    """

    def __init__(self, client: KubeClient) -> None:
        super().__init__()
        self._client = client

    def added(self, ref: ObjectRef) -> None:
        """Nothing to prepare."""

    def dropped(self, ref: ObjectRef) -> None:
        """Nothing to forget."""

    async def get(self, ref: ObjectRef) -> ObjectValue | None:
        """The object as the API server has it now."""
        try:
            return await fetch(self._client, ref)
        except KubeError as error:
            raise SyncError(str(error)) from error


class _Cached:
    """One object.

    Attributes:
        value: None when there is none, or nothing is known.
        known: whether ``value`` is what the API server said.
        until: loop time until which it counts.
        lock: one request at a time.
    """

    __slots__ = ("known", "lock", "until", "value")

    def __init__(self) -> None:
        self.value: ObjectValue | None = None
        self.known = False
        self.until = 0.0
        self.lock = anyio.Lock()


class CachedObjects(_OnRequest):
    """Asks for an object again when what is known of it is old, or a pod refers to it anew.

    Args:
        client: asks the API server.
        ttl: seconds for which an object counts.
    """

    def __init__(self, client: KubeClient, ttl: Callable[[], float] = lambda: DEFAULT_TTL) -> None:
        super().__init__()
        self._client = client
        self._ttl = ttl
        self._entries: dict[ObjectRef, _Cached] = {}

    def added(self, ref: ObjectRef) -> None:
        """What is known of the object may be older than the pod."""
        self._entries.setdefault(ref, _Cached()).until = 0.0

    def dropped(self, ref: ObjectRef) -> None:
        """Forget the object."""
        self._entries.pop(ref, None)

    async def get(self, ref: ObjectRef) -> ObjectValue | None:
        """The object, from memory while it counts."""
        entry = self._entries.get(ref)
        if entry is None:
            raise SyncError(not_registered(ref))
        async with entry.lock:
            if not self._counts(entry):
                await self._renew(ref, entry)
            return entry.value

    def _counts(self, entry: _Cached) -> bool:
        value = entry.value
        if value is None:
            return False
        return bool(value.immutable) or anyio.current_time() < entry.until

    async def _renew(self, ref: ObjectRef, entry: _Cached) -> None:
        try:
            found = await fetch(self._client, ref, from_cache=entry.value is not None)
        except KubeError as error:
            if not entry.known:
                raise SyncError(str(error)) from error
            return
        entry.known = True
        if found is None or not _older(found, entry.value):
            entry.value = found
            entry.until = anyio.current_time() + self._ttl()


def _older(new: ObjectValue, old: ObjectValue | None) -> bool:
    """Whether an API server that lags behind has given an earlier version."""
    if old is None or new.metadata.uid != old.metadata.uid:
        return False
    return is_newer(old.metadata.resource_version, new.metadata.resource_version)
