"""Doing one step about one volume, and noting what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import SyncError
from nodeagent.volumes.mounter import Mounter, MountError
from nodeagent.volumes.plugin import SetUp, Stage, TearDown, VolumeError
from nodeagent.volumes.pod_volumes import OneVolume, PodVolumes
from nodeagent.volumes.reconcile import Step, ended
from nodeagent.volumes.threads import DiskThreads
from nodeagent.volumes.wanted import ownership

Record: TypeAlias = Callable[[Pod, str, str, str], None]
"""Emits an event about a pod: type, reason, message. Never waits."""

_EXPECTED: Final = (VolumeError, MountError, SyncError, OSError, ValueError)


def nobody(_pod: Pod, _type: str, _reason: str, _message: str) -> None:
    """No one is told."""


class Operations:
    """Performs steps.

    Args:
        root_dir: the agent's directory.
        mounter: mounts.
        threads: where blocking work is done.
        record: emits events about pods.
        clock: wall clock, for what is shown.
        journal: the flight recorder.
    """

    def __init__(
        self,
        root_dir: Path,
        mounter: Mounter,
        threads: DiskThreads,
        record: Record,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self._root_dir = root_dir
        self._mounter = mounter
        self._threads = threads
        self._record = record
        self._clock = clock
        self._journal = journal
        self._log = Log("volumes")

    async def perform(
        self,
        held: PodVolumes,
        volume: OneVolume,
        step: Step,
        then: Callable[[PodVolumes], None],
    ) -> None:
        """Do a step that has been begun, note what came of it, and let the next one follow.

        Args:
            held: the pod.
            volume: its volume.
            step: what to do.
            then: is called with the pod afterwards.
        """
        volume.since = self._clock.now()
        began = anyio.current_time()
        failure: Exception | None = None
        changed = False
        try:
            changed = await self._do(held, volume, step)
        except _EXPECTED as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a plugin's fault must not end the others
            self._log.fault("volume_step_broke", error, uid=held.uid, volume=volume.name)
            failure = error
        now = anyio.current_time()
        volume.since = None
        volume.state = ended(volume.state, ok=failure is None, now=now)
        if failure is None:
            volume.error = volume.reject = ""
            if changed:
                self._journal.record(
                    "volumes", "VolumeRefreshed", held.uid, "", now - began, volume=volume.name
                )
        else:
            self._failed(held, volume, step, failure)
        held.tell()
        then(held)

    async def _do(self, held: PodVolumes, volume: OneVolume, step: Step) -> bool:
        """Do it; says whether the content of a volume in use has changed."""
        directory = self._root_dir / "pods" / held.uid / volume.place
        if step is Step.TEAR_DOWN:
            volume.mounted = None
            await volume.plugin.tear_down(
                TearDown(
                    uid=held.uid,
                    name=volume.name,
                    root_dir=self._root_dir,
                    directory=directory,
                    mounter=self._mounter,
                    threads=self._threads,
                )
            )
            return False
        pod, spec = held.pod, volume.spec
        if pod is None or spec is None:
            return False
        request = SetUp(
            pod=pod,
            volume=spec,
            root_dir=self._root_dir,
            directory=directory,
            mounter=self._mounter,
            threads=self._threads,
            ownership=ownership(pod),
            note=lambda kind, reason, text: self._record(pod, kind, reason, text),
            clock=self._clock,
        )
        if step is Step.REFRESH:
            return await volume.plugin.refresh(request)
        volume.mounted = await volume.plugin.set_up(request)
        return False

    def _failed(self, held: PodVolumes, volume: OneVolume, step: Step, failure: Exception) -> None:
        volume.error = say(failure)
        volume.stage = failure.stage if isinstance(failure, VolumeError) else Stage.SET_UP
        volume.reject = failure.reject if isinstance(failure, VolumeError) else ""
        self._log.warning(
            "volume_step_failed",
            uid=held.uid,
            volume=volume.name,
            step=step.value,
            failures=volume.state.failures,
            error=volume.error,
        )
        if step is Step.TEAR_DOWN or held.pod is None or volume.stage is Stage.PROCESS:
            return
        if isinstance(failure, VolumeError) and failure.quiet:
            return
        text = f'{volume.stage.value} failed for volume "{volume.name}" : {volume.error}'
        self._record(held.pod, "Warning", volume.stage.reason, text)


def say(error: Exception) -> str:
    """An error, for people."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
