"""The pods that the API server named last, on disk, so that they run also while it is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.api.codec import convert, encode
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.sources.api_names import name_fault
from nodeagent.state_file import StateFile

log = Log("source.api")

GAP: Final = 1.0
"""Seconds between two saves: statuses change often, and a disk wears out."""
_LAST_SAVE: Final = 2.0


@dataclass(frozen=True, slots=True)
class SavedPods:
    """What a checkpoint holds.

    Attributes:
        pods: the pods.
        version: resource version that they are of; "" when there is no checkpoint.
    """

    pods: tuple[Pod, ...] = ()
    version: str = ""


class ApiCheckpoint:
    """Reads and writes the pods. Blocking: call it in a thread.

    The file is readable by its owner only: what is in environment variables may be secret.

    Args:
        path: the checkpoint file.
        node_name: name of the node; pods of another one are not taken.
        cluster: tells clusters apart, such as the address of the server; pods of another
            cluster are not taken. "" while it is not known, which fits every one.
    """

    def __init__(self, path: Path, node_name: str, cluster: Callable[[], str] = str) -> None:
        self._file = StateFile(path)
        self._node_name = node_name
        self._cluster = cluster

    @property
    def problem(self) -> str:
        """What was wrong with the file at the last load; "" when nothing was."""
        return self._file.problem

    @property
    def refused(self) -> dict[str, str]:
        """Why the last save failed, by the file's name; empty when it did not."""
        return {self._file.path.name: self._file.refused} if self._file.refused else {}

    def save(self, pods: Iterable[Pod], version: str) -> None:
        """Write the pods.

        Raises:
            OSError: they could not be written; what was there stays.
        """
        raw = [msgspec.Raw(encode(pod)) for pod in pods]
        owner = {"node": self._node_name, "cluster": self._cluster()}
        self._file.save({**owner, "version": version, "pods": raw})

    async def save_in_time(self, pods: Iterable[Pod], version: str) -> None:
        """Write the pods in a thread; see :meth:`nodeagent.state_file.StateFile.in_time`.

        Raises:
            OSError: they could not be written, or not in time.
        """
        await self._file.in_time(partial(self.save, pods, version))

    def load(self) -> SavedPods:
        """The pods that were saved; none when there is no checkpoint or it is damaged."""
        content = self._file.load()
        if not isinstance(content, Mapping):
            return SavedPods()
        saved, now = content.get("cluster"), self._cluster()
        if content.get("node") != self._node_name or (saved and now and saved != now):
            log.info("api_checkpoint_ignored", cause="it is of another node or cluster")
            return SavedPods()
        entries, version = content.get("pods"), content.get("version")
        pods = map(_restored, entries if isinstance(entries, list) else ())
        known = tuple(pod for pod in pods if pod is not None)
        return SavedPods(known, version if isinstance(version, str) else "")


def _restored(entry: object) -> Pod | None:
    try:
        pod = convert(entry, Pod)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        log.warning("api_checkpoint_entry_ignored", cause=str(error))
        return None
    if fault := name_fault(pod):
        log.warning("api_checkpoint_entry_ignored", cause=fault)
        return None
    return pod


class CheckpointWriter:
    """Saves the pods soon after they have changed, off the event loop.

    Args:
        checkpoint: where to.
        pods: the pods now, by key.
        version: their version now.
        journal: told when it cannot be saved.
    """

    def __init__(
        self,
        checkpoint: ApiCheckpoint,
        pods: Callable[[], Mapping[str, Pod]],
        version: Callable[[], str],
        journal: Journal,
    ) -> None:
        self._checkpoint = checkpoint
        self._pods = pods
        self._version = version
        self._journal = journal
        self._wake = anyio.Event()
        self._due = False
        self._saved: dict[str, Pod] | None = None
        self._trouble = ""

    def wake(self) -> None:
        """The pods are those of the server, and may have changed."""
        self._due = True
        self._wake.set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Save after every :meth:`wake`, and what is left when cancelled."""
        task_status.started()
        try:
            while True:
                if not self._due:
                    self._wake = anyio.Event()
                    await self._wake.wait()
                await self._save()
                await anyio.sleep(GAP)
        finally:
            with anyio.move_on_after(_LAST_SAVE, shield=True):
                await self._save()

    async def _save(self) -> None:
        """Save if it is due and something has changed; a disk that refuses is asked again."""
        if not self._due:
            return
        pods = dict(self._pods())
        if self._saved is None or not _same(self._saved, pods):
            try:
                await self._checkpoint.save_in_time(pods.values(), self._version())
            except OSError as error:
                self._refused(error.strerror or str(error))
                return
        self._saved = pods
        self._due = not _same(pods, self._pods())
        if self._trouble:
            log.info("api_checkpoint_saved_again")
            self._journal.record("source", "CheckpointSavedAgain", why=f"after: {self._trouble}")
        self._trouble = ""

    def _refused(self, cause: str) -> None:
        if cause != self._trouble:
            remedy = "pods run on; it is tried again every few seconds"
            log.warning("api_checkpoint_not_saved", cause=cause, remedy=remedy)
            self._journal.record("source", "CheckpointNotSaved", why=cause)
        self._trouble = cause


def _same(before: Mapping[str, Pod], after: Mapping[str, Pod]) -> bool:
    """Whether they hold the very same objects; an unchanged pod stays the same one."""
    return len(before) == len(after) and all(before.get(k) is pod for k, pod in after.items())
