"""Rotating container logs (docs/behaviour/garbage.md, "Rotation")."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.aio import Interval
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime import names
from nodeagent.runtime.errors import describe
from nodeagent.runtime.log_rotation_plan import (
    COMPRESSED,
    TEMPORARY,
    RotationPolicy,
    plan_rotation,
    rotated_name,
)
from nodeagent.runtime.logs import container_log, plain_names

_CHUNK: Final = 256 * 1024
_REOPENING: Final = 10.0
"""Seconds that a rotation may take to end when the agent ends in the middle of it."""


class LogRuntime(Protocol):
    """The part of :class:`nodeagent.cri.RuntimeService` that rotation needs."""

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match."""
        ...

    async def reopen_container_log(self, container_id: str) -> None:
        """Have the runtime write to a new file."""
        ...


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """The log of a running container."""

    id: str
    pod: str
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What a look at all logs found: sizes in bytes, and logs that are missing."""

    sizes: Mapping[str, int]
    lost: frozenset[str]


@dataclass(slots=True, kw_only=True)
class LogRotation:
    """Looks at all logs every period and rotates those that have grown too large.

    Args:
        runtime: lists containers, and reopens their logs.
        logs_dir: where pods have their log directories.
        policy: when, and what is kept.
        clock: wall time, for the names of files.
        journal: the flight recorder.
    """

    runtime: LogRuntime
    logs_dir: Path
    policy: RotationPolicy
    clock: Clock
    journal: Journal
    _log: Log = field(default_factory=lambda: Log("runtime.logs"))
    _seen: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _period: Interval = field(init=False)

    def __post_init__(self) -> None:
        self._period = Interval(self.policy.period)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Look and rotate every period until cancelled."""
        task_status.started()
        try:
            while True:
                await self._period.sleep()
                try:
                    if self.policy.max_size >= 0:
                        await self.look()
                except Exception as error:  # noqa: BLE001 - the next look tries again
                    self._log.warning("logs_not_looked_at", cause=repr(error))
        finally:
            # A thread that compresses stops at its next piece; nobody waits for all of it.
            self._stop.set()

    def reconfigure(self, policy: RotationPolicy) -> None:
        """Rotate by another policy from now on; never blocks."""
        self.policy = policy
        self._period.change(policy.period)

    async def look(self) -> None:
        """Rotate what is too large, and have what is lost written anew."""
        running = v1.ContainerStateValue(state=v1.ContainerState.CONTAINER_RUNNING)
        try:
            listed = await self.runtime.list_containers(v1.ContainerFilter(state=running))
        except RpcError as error:
            self._log.debug("logs_not_looked_at", cause=describe(error))
            return
        logs = {log.id: log for c in listed if (log := self._log_of(c)) is not None}
        found = await to_thread.run_sync(_look, tuple(logs.values()))
        self._seen = (self._seen & logs.keys()) | found.sizes.keys()
        # One that is still missing after it was asked for is none that will ever come.
        self._asked &= found.lost
        lost = found.lost - self._asked
        due = [logs[cid] for cid, size in found.sizes.items() if size >= self.policy.max_size]
        limiter = anyio.Semaphore(self.policy.workers)
        async with anyio.create_task_group() as tasks:
            for cid in lost:
                tasks.start_soon(self._recover, logs[cid], limiter)
            for log in due:
                tasks.start_soon(self._rotate, log, found.sizes[log.id], limiter)

    def _log_of(self, container: v1.Container) -> ContainerLog | None:
        labels = container.labels
        pod = names.PodNames(
            labels.get(names.POD_NAME, ""),
            labels.get(names.POD_NAMESPACE, ""),
            labels.get(names.POD_UID, ""),
        )
        name = labels.get(names.CONTAINER_NAME, "")
        if container.metadata is None or not plain_names(pod, name):
            return None
        path = container_log(self.logs_dir, pod, name, container.metadata.attempt)
        return ContainerLog(container.id, pod.uid, name, path)

    async def _recover(self, log: ContainerLog, limiter: anyio.Semaphore) -> None:
        """The log is not where it was: a rotation was cut, or somebody removed it."""
        async with limiter:
            try:
                await self.runtime.reopen_container_log(log.id)
            except RpcError as error:
                self._failed(log, describe(error))
                return
            self._asked.add(log.id)
            if log.id in self._seen:
                self._seen.discard(log.id)
                self._record("LogReopened", log, "the file was gone")

    async def _rotate(self, log: ContainerLog, size: int, limiter: anyio.Semaphore) -> None:
        async with limiter:
            began = anyio.current_time()
            try:
                await to_thread.run_sync(self._make_room, log.path)
                # From here on the log has no file until it is reopened: both or nothing.
                with anyio.move_on_after(_REOPENING, shield=True) as scope:
                    await self._replace(log)
            except OSError as error:
                self._failed(log, f"{error.filename or log.path}: {error.strerror}")
            except RpcError as error:
                self._failed(log, describe(error))
            else:
                if scope.cancelled_caught:
                    # It is looked for again at the next look.
                    self._failed(log, f"the runtime did not reopen it within {_REOPENING:g} s")
                    return
                took = anyio.current_time() - began
                self._record("LogRotated", log, f"{size} bytes", took)

    def _make_room(self, path: Path) -> None:
        """Remove and compress what was rotated before. Blocking."""
        entries = [entry.name for entry in path.parent.iterdir()]
        plan = plan_rotation(path.name, entries, self.policy.max_files)
        for name in plan.remove:
            (path.parent / name).unlink(missing_ok=True)
        for name in plan.compress:
            compress(path.parent / name, self._stop)

    async def _replace(self, log: ContainerLog) -> None:
        path = log.path
        target = await to_thread.run_sync(self._move_away, path)
        try:
            await self.runtime.reopen_container_log(log.id)
        except RpcError:
            await to_thread.run_sync(_move_back, target, path)
            raise

    def _move_away(self, path: Path) -> Path:
        entries = [entry.name for entry in path.parent.iterdir()]
        target = path.parent / rotated_name(path.name, entries, self.clock.now())
        path.rename(target)
        return target

    def _failed(self, log: ContainerLog, cause: str) -> None:
        self._log.warning("log_not_rotated", file=str(log.path), cause=cause)
        self._record("LogRotationFailed", log, cause)

    def _record(
        self, what: str, log: ContainerLog, why: str, duration: float | None = None
    ) -> None:
        self.journal.record(
            "runtime", what, log.pod, why, duration, container=log.name, file=str(log.path)
        )


def _look(logs: Sequence[ContainerLog]) -> _Sizes:
    """Blocking."""
    sizes: dict[str, int] = {}
    lost: set[str] = set()
    for log in logs:
        try:
            sizes[log.id] = log.path.stat().st_size
        except OSError:
            lost.add(log.id)
    return _Sizes(sizes, frozenset(lost))


def _move_back(source: Path, path: Path) -> None:
    if not path.exists():
        with suppress(OSError):
            source.rename(path)


def compress(path: Path, stop: threading.Event) -> None:
    """Replace a file by a compressed one. Blocking; leaves the file when told to stop.

    Raises:
        OSError: it cannot be read or written; the file is untouched.
    """
    temporary = path.with_name(f"{path.name}{TEMPORARY}")
    mode = path.stat().st_mode & 0o777
    try:
        with path.open("rb") as source, temporary.open("wb") as raw:
            temporary.chmod(mode)
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb") as target:
                while chunk := source.read(_CHUNK):
                    if stop.is_set():
                        return
                    target.write(chunk)
            raw.flush()
            os.fsync(raw.fileno())
        temporary.rename(path.with_name(f"{path.name}{COMPRESSED}"))
        path.unlink(missing_ok=True)
    finally:
        temporary.unlink(missing_ok=True)
