"""What a kind of volume is: the interface between the volume manager and its plugins."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from nodeagent.api import Pod, Volume
from nodeagent.clock import Clock, SystemClock
from nodeagent.model import PodUID
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.mounter import Mounter
from nodeagent.volumes.threads import DiskThreads
from nodeagent.volumes.usage import Measure, VolumeUsage

Note: TypeAlias = Callable[[str, str, str], None]
"""Emits an event about the pod: type (Normal, Warning), reason, message. Never waits."""


def no_note(_type: str, _reason: str, _message: str) -> None:
    """Say nothing."""


class Stage(enum.StrEnum):
    """Where in the making of a volume something failed; the words of the events."""

    PROCESS = "process"
    """Before anything was mounted: what the pod refers to is not usable. The pod is told at
    once (``failed to process volumes``); the next sync of the pod tries again."""
    AFFINITY = "MountVolume.NodeAffinity check"
    ATTACH = "MountVolume.WaitForAttach"
    DEVICE = "MountVolume.MountDevice"
    SET_UP = "MountVolume.SetUp"
    MAP_DEVICE = "MapVolume.SetUpDevice"
    MAP = "MapVolume.MapPodDevice"

    @property
    def reason(self) -> str:
        """The reason of the event that tells of a failure."""
        return "FailedMapVolume" if self in (Stage.MAP_DEVICE, Stage.MAP) else "FailedMount"


class VolumeError(Exception):
    """A volume could not be made or unmade.

    Attributes:
        stage: where it failed.
        reject: a word when the pod can never run here and must be rejected with it
            (``VolumeAttachmentLimitExceeded``); "" to try again.
        quiet: whether it is only waited for something that others do: no event tells of it.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: Stage = Stage.SET_UP,
        reject: str = "",
        quiet: bool = False,
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.reject = reject
        self.quiet = quiet


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Whom the files of a volume shall belong to.

    Attributes:
        fs_group: group of all files; None to leave them as they are.
        fs_user: owner of token files: the one user that all containers run as; None for root.
        on_root_mismatch: whether nothing is changed when the top directory is right already.
    """

    fs_group: int | None = None
    fs_user: int | None = None
    on_root_mismatch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """One volume of one pod that is to be made.

    Attributes:
        pod: the pod, as it is desired now.
        volume: its volume.
        root_dir: the agent's directory.
        directory: the volume's own place, ``<pod directory>/volumes/<plugin>/<volume>``. Its
            parent need not exist.
        ownership: whom the files shall belong to.
        mounter: mounts; blocking.
        threads: where blocking work is done.
        note: emits events about the pod.
        clock: wall clock, for what is shown.
    """

    pod: Pod
    volume: Volume
    root_dir: Path
    directory: Path
    mounter: Mounter
    threads: DiskThreads
    ownership: Ownership = field(default_factory=Ownership)
    note: Note = no_note
    clock: Clock = field(default_factory=SystemClock)

    @property
    def uid(self) -> PodUID:
        """The pod's UID."""
        return PodUID(self.pod.metadata.uid)

    @property
    def pod_dir(self) -> Path:
        """The pod's directory."""
        return self.root_dir / "pods" / self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class TearDown:
    """One volume of one pod that is to go; possibly made by an earlier agent.

    Attributes:
        uid: the pod.
        name: the volume.
        root_dir: the agent's directory.
        directory: where it is: ``.../volumes/<plugin>/<volume>``, or
            ``.../volumeDevices/<plugin>/<volume>``.
        mounter: mounts; blocking.
        threads: where blocking work is done.
    """

    uid: PodUID
    name: str
    root_dir: Path
    directory: Path
    mounter: Mounter
    threads: DiskThreads

    @property
    def pod_dir(self) -> Path:
        """The pod's directory."""
        return self.root_dir / "pods" / self.uid


class VolumePlugin(Protocol):
    """One kind of volume.

    The manager calls at most one method for a volume of a pod at a time. Each may be cancelled
    at any await, and the agent may be killed between any two steps: what is half done is done
    again by the next ``set_up``, or undone by ``tear_down``. Blocking work goes to
    ``request.threads``. Errors are ``VolumeError``; an ``OSError`` or ``MountError`` is taken
    for one of ``Stage.SET_UP``.
    """

    @property
    def name(self) -> str:
        """``kubernetes.io/empty-dir``; its directories have ``~`` for ``/``."""
        ...

    @property
    def refreshes(self) -> bool:
        """Whether the content follows something else, so that resyncs call ``refresh``."""
        ...

    def handles(self, volume: Volume) -> bool:
        """Whether a volume is of this kind."""
        ...

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Make the volume; idempotent."""
        ...

    async def refresh(self, request: SetUp) -> bool:
        """Bring the content of a volume that is set up, and in use, up to date.

        Cheap when nothing has changed. Says whether anything had.
        """
        ...

    async def tear_down(self, request: TearDown) -> None:
        """Undo what ``set_up`` did, given only the directory; idempotent.

        The directory is gone afterwards, but what does not belong to the pod is still there.
        """
        ...


@runtime_checkable
class MeasuresItself(Protocol):
    """A kind of volume that knows better than to count all files."""

    async def measure(self, request: Measure) -> VolumeUsage | None:
        """What a volume takes; None when nobody can say.

        Raises:
            OSError: it cannot be looked at now.
        """
        ...


class PluginRegistry:
    """All kinds of volumes.

    Args:
        plugins: the kinds; the first that handles a volume has it.
    """

    def __init__(self, plugins: Iterable[VolumePlugin] = ()) -> None:
        self._plugins = list(plugins)

    def add(self, plugin: VolumePlugin) -> None:
        """Add a kind."""
        self._plugins.append(plugin)

    def find(self, volume: Volume) -> VolumePlugin | None:
        """The plugin of a volume; None for a kind that nobody handles."""
        return next((plugin for plugin in self._plugins if plugin.handles(volume)), None)

    def by_directory(self, name: str) -> VolumePlugin | None:
        """The plugin whose directories have a name (``kubernetes.io~empty-dir``)."""
        return next((p for p in self._plugins if directory_name(p.name) == name), None)


def directory_name(plugin: str) -> str:
    """The name of a plugin in paths."""
    return plugin.replace("/", "~")
