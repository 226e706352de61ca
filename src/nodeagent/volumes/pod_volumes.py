"""What the volume manager keeps of one pod."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio

from nodeagent.api import Pod, Volume
from nodeagent.model import PodUID
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.plugin import Stage, VolumePlugin
from nodeagent.volumes.reconcile import Held, Step, VolumeState

TIMED_OUT: Final = "timed out waiting for the condition"


@dataclass(slots=True, eq=False)
class OneVolume:
    """One volume.

    Attributes:
        name: its name in the pod.
        place: its directory, relative to the pod's.
        plugin: its kind.
        spec: what the pod says of it; None for what an earlier agent left.
        state: where it is.
        mounted: what the runtime needs to know, once it is ready.
        error: why the last try failed; "" when none did.
        stage: where it failed.
        reject: why the pod can never run here.
        since: wall time at which the step that is under way began.
    """

    name: str
    place: str
    plugin: VolumePlugin
    spec: Volume | None = None
    state: VolumeState = field(default_factory=VolumeState)
    mounted: MountedVolume | None = None
    error: str = ""
    stage: Stage = Stage.SET_UP
    reject: str = ""
    since: datetime | None = None

    @property
    def ready(self) -> bool:
        """Whether containers may use it."""
        return self.mounted is not None and self.state.held is Held.MOUNTED

    def trouble(self) -> str:
        """Why it is not where it should be, as far as anybody knows; for people."""
        if self.state.busy is not None and self.since is not None:
            what = "mounting" if self.state.busy is Step.SET_UP else self.state.busy.value
            since = self.since.strftime("%Y-%m-%dT%H:%M:%SZ")
            hint = f'volume "{self.name}": {what} since {since}, no answer yet'
            return f"{hint} (before: {self.error})" if self.error else hint
        return f'volume "{self.name}": {self.error}' if self.error else ""


@dataclass(slots=True, eq=False)
class PodVolumes:
    """All volumes of one pod.

    Attributes:
        uid: the pod.
        pod: as it is desired; None when it is not.
        volumes: by place.
        changed: set, and replaced, whenever one of them has changed.
        timer: when something is tried again.
        told: names of the volumes that the journal has as mounted.
        waiting: whether the pod waits for them, and for long enough to say so.
        reported: what was last said of a directory that cannot be removed.
        failures: how often its removal failed in a row.
        retry_at: loop time before which its removal is not tried again.
    """

    uid: PodUID
    pod: Pod | None = None
    volumes: dict[str, OneVolume] = field(default_factory=dict)
    changed: anyio.Event = field(default_factory=anyio.Event)
    timer: asyncio.TimerHandle | None = None
    told: frozenset[str] = frozenset()
    waiting: bool = False
    reported: str = ""
    failures: int = 0
    retry_at: float = 0.0

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        self.changed.set()
        self.changed = anyio.Event()

    def wanted(self) -> Iterator[OneVolume]:
        """The volumes that the pod is to have."""
        return (volume for volume in self.volumes.values() if volume.state.wanted)

    def missing(self) -> list[OneVolume]:
        """Those of them that are not ready."""
        return [volume for volume in self.wanted() if not volume.ready]

    def left(self) -> list[OneVolume]:
        """Those of which something is there."""
        return [v for v in self.volumes.values() if v.state.held is not Held.NOTHING]

    def stop_timer(self) -> None:
        """Try nothing again by itself."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def unready(held: PodVolumes, cause: str) -> str:
    """Which volumes are missing, and why, in the kubelet's words."""
    missing = held.missing()
    unmounted = sorted(v.name for v in missing)
    unattached = sorted(v.name for v in missing if v.error and v.stage is Stage.ATTACH)
    failed = sorted(v.name for v in missing if v.error and v.stage is Stage.PROCESS)
    text = (
        f"unmounted volumes={_list(unmounted)}, unattached volumes={_list(unattached)}, "
        f"failed to process volumes={_list(failed)}: {cause}"
    )
    if cause == TIMED_OUT:
        text = "; ".join((text, *filter(None, (v.trouble() for v in missing))))
    return text


def still_mounted(held: PodVolumes, cause: str) -> str:
    """Which volumes are left, and why."""
    left = held.left()
    text = f"mounted volumes={_list(sorted(v.name for v in left))}: {cause}"
    if cause == TIMED_OUT:
        text = "; ".join((text, *filter(None, (v.trouble() for v in left))))
    return text


def _list(names: list[str]) -> str:
    return f"[{' '.join(names)}]"
