"""User namespaces of pods: which host ids are root and the others inside (KEP-127).

docs/behaviour/runtime.md, "User namespaces".
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from nodeagent.api import Pod
from nodeagent.log import Log
from nodeagent.model import PodUID, SyncError
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import SyncReason
from nodeagent.runtime.sub_ids import LENGTH, pod_ids

log = Log("runtime.userns")

_FILE: Final = "userns"


def mapping(first: int) -> v1.UserNamespace:
    """The namespace in which the ids from 0 are those of the host from ``first``."""
    ids = [v1.IdMapping(host_id=first, container_id=0, length=LENGTH)]
    return v1.UserNamespace(mode=v1.NamespaceMode.POD, uids=ids, gids=ids)


class UserNamespaces:
    """Gives each pod that wants one a range of host ids of its own.

    What is given is kept in the pod's directory, so that it stays the same over a restart of
    the agent.

    Args:
        pods_dir: where the pods' directories lie.
        pods: how many there may be.
        find: where ranges begin that pods may have.
    """

    def __init__(
        self, pods_dir: Path, pods: int, find: Callable[[int], Awaitable[range]] = pod_ids
    ) -> None:
        self._pods_dir = pods_dir
        self._pods = pods
        self._find = find
        self._ranges = range(0)
        self._ranges_for: int | None = None
        self._given: dict[PodUID, int] = {}
        self._lock = anyio.Lock()
        self._loaded = False

    def resize(self, pods: int) -> None:
        """There may be so many pods from now on; the ranges that they have stay theirs."""
        self._pods = pods

    async def of(self, pod: Pod) -> v1.UserNamespace | None:
        """The pod's namespace; None when it has the host's users.

        Raises:
            SyncError: no range is left, or it cannot be recorded.
        """
        if pod.spec.host_users is not False:
            return None
        uid = PodUID(pod.metadata.uid)
        try:
            async with self._lock:
                return mapping(await self._range(uid))
        except OSError as error:
            message = f"the pod's user namespace cannot be recorded: {error}"
            raise SyncError(message, reason=SyncReason.CREATE_SANDBOX) from error

    def forget_pod(self, uid: PodUID) -> None:
        """The pod is gone with its directory: others may have its ids."""
        self._given.pop(uid, None)

    async def _range(self, uid: PodUID) -> int:
        if not self._loaded:
            self._given.update(await to_thread.run_sync(self._load))
            self._loaded = True
        first = self._given.get(uid)
        if first is None:
            first = await self._free()
            await to_thread.run_sync(self._save, uid, first)
            self._given[uid] = first
        return first

    async def _free(self) -> int:
        if self._ranges_for != (pods := self._pods):
            self._ranges = await self._find(pods)
            self._ranges_for = pods
        taken = set(self._given.values())
        first = next((candidate for candidate in self._ranges if candidate not in taken), None)
        if first is None:
            count = len(self._ranges)
            message = f"all {count} ranges of user ids for pods with hostUsers: false are used"
            raise SyncError(message, reason=SyncReason.CREATE_SANDBOX)
        return first

    def _load(self) -> dict[PodUID, int]:
        return dict(self._recorded())

    def _recorded(self) -> Iterator[tuple[PodUID, int]]:
        for path in sorted(self._pods_dir.glob(f"*/{_FILE}")):
            try:
                yield PodUID(path.parent.name), _first_id(json.loads(path.read_bytes()))
            except (ValueError, KeyError, IndexError, TypeError) as error:
                log.warning("userns_record_ignored", path=str(path), cause=str(error))

    def _save(self, uid: PodUID, first: int) -> None:
        ids = [{"hostId": first, "containerId": 0, "length": LENGTH}]
        path = self._pods_dir / uid / _FILE
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        draft = path.with_name(f".{_FILE}.new")
        draft.write_text(json.dumps({"uidMappings": ids, "gidMappings": ids}), encoding="ascii")
        draft.rename(path)


def _first_id(record: Any) -> int:
    (entry,) = record["uidMappings"]
    first = int(entry["hostId"])
    if record["gidMappings"] != [entry] or entry["containerId"] != 0 or entry["length"] != LENGTH:
        raise ValueError("unexpected mapping")
    if first < LENGTH or first % LENGTH:
        msg = f"range begins at {first}"
        raise ValueError(msg)
    return first
