"""Scenarios with real mounts: ``python real_mounts.py SCENARIO DIRECTORY``.

Runs in a mount namespace of its own, so that nothing is left behind whatever happens.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from nodeagent import AgentConfig, NodeAgent
from nodeagent.api import (
    Container,
    EmptyDirVolumeSource,
    ObjectMeta,
    Pod,
    PodSpec,
    SecretVolumeSource,
    Volume,
    VolumeMount,
)
from nodeagent.api.objects import Secret
from nodeagent.embedded import SimulatedBackend, open_embedded
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes import VolumeManager, threads
from nodeagent.volumes.content_kinds import content_plugins
from nodeagent.volumes.empty_dir import EmptyDirPlugin
from nodeagent.volumes.mounter import Mounter, MountError, SystemMounter, is_mounted
from nodeagent.volumes.mounts import MountPoint
from nodeagent.volumes.objects import NoObjects, NoValues
from nodeagent.volumes.plugin import PluginRegistry

UID: Final = PodUID("uid-1")
MEMORY: Final = Volume(name="mem", empty_dir=EmptyDirVolumeSource(medium="Memory", size_limit=None))
DISK: Final = Volume(name="disk", empty_dir=EmptyDirVolumeSource())
SECRET: Final = Volume(
    name="secret", secret=SecretVolumeSource(secret_name="s", default_mode=0o400)
)


class Objects(NoObjects):
    """One Secret."""

    async def get_secret(self, namespace: str, name: str) -> Secret | None:
        """It."""
        del namespace, name
        return Secret(data={"password": b"hunter2"})


class Killed(BaseException):
    """The agent is gone."""


class DyingMounter(SystemMounter):
    """The agent is killed before, or right after, one of its mounts."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def mount(
        self, fs_type: str, target: Path, *, source: str = "none", options: Sequence[str] = ()
    ) -> None:
        """Mount, or die."""
        self._step()
        super().mount(fs_type, target, source=source, options=options)
        self._step()

    def bind(self, source: Path | str, target: Path, *, read_only: bool = False) -> None:
        """Bind, or die."""
        self._step()
        super().bind(source, target, read_only=read_only)
        self._step()

    def unmount(self, target: Path, *, lazy: bool = False) -> None:
        """Unmount, or die."""
        self._step()
        super().unmount(target, lazy=lazy)
        self._step()


def pod(*volumes: Volume) -> Pod:
    """A pod whose container mounts all of its volumes."""
    mounts = tuple(VolumeMount(name=v.name, mount_path=f"/{v.name}") for v in volumes)
    container = Container(name="main", volume_mounts=mounts)
    spec = PodSpec(volumes=volumes, containers=(container,))
    return Pod(metadata=ObjectMeta(name="web", namespace="default", uid=UID), spec=spec)


@asynccontextmanager
async def running(root: Path, mounter: Mounter | None = None) -> AsyncIterator[VolumeManager]:
    """A manager at work."""
    plugins = PluginRegistry((EmptyDirPlugin(), *content_plugins(Objects(), NoValues())))
    manager = VolumeManager(root, plugins=plugins, mounter=mounter or SystemMounter())
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        yield manager
        tasks.cancel_scope.cancel()


def mounted_below(root: Path) -> list[MountPoint]:
    """What is mounted there now."""
    return SystemMounter().mounts(root)


async def memory(root: Path) -> None:
    """Directories in memory, and secrets that never touch the disk."""
    async with running(root) as manager:
        volumes = await manager.mount(pod(MEMORY, SECRET))
        assert {(Path(p.path).name, p.fs_type) for p in mounted_below(root)} == {
            ("mem", "tmpfs"),
            ("secret", "tmpfs"),
        }
        secret = Path(volumes["secret"].host_path)
        assert (secret / "password").read_bytes() == b"hunter2"
        assert (secret / "password").stat().st_mode & 0o777 == 0o400
        SystemMounter().unmount(secret)
        assert list(secret.iterdir()) == [], "the secret lies on the disk"
        await manager.unmount(UID)
    assert mounted_below(root) == []
    assert list((root / "pods").iterdir()) == []


async def sub_path(root: Path) -> None:
    """A part of a volume stays what it was, whatever the container does to it."""
    (root / "precious").write_text("hands off")
    async with running(root) as manager:
        top = (await manager.mount(pod(DISK)))["disk"]
        whole = Path(top.host_path)
        await manager.sub_paths.make(top, "a/b")
        place = Path(await manager.sub_paths.prepare(UID, "main", 0, top, "a/b"))
        (whole / "a/b/file").write_text("x")
        assert (place / "file").read_text() == "x"
        (whole / "a").rename(whole / "moved")
        (whole / "a").symlink_to("/")
        assert (place / "file").read_text() == "x"
        for attack in ("a/b", "a", "a/etc"):
            with pytest.raises(SyncError, match="leads out of the volume"):
                await manager.sub_paths.prepare(UID, "main", 0, top, attack)
        again = await manager.sub_paths.prepare(UID, "main", 0, top, "moved")
        assert (Path(again) / "b/file").read_text() == "x"
        (whole / "one").write_text("file")
        single = Path(await manager.sub_paths.prepare(UID, "main", 1, top, "one"))
        assert single.read_text() == "file"
    async with running(root) as manager:
        # Another agent, which has never heard of the pod.
        assert await manager.remove_orphan(UID)
    assert mounted_below(root) == []
    assert (root / "precious").read_text() == "hands off"


async def read_only(root: Path) -> None:
    """A read-only bind mount cannot be written to."""
    source, target = root / "source", root / "target"
    source.mkdir()
    target.mkdir()
    SystemMounter().bind(source, target, read_only=True)
    with pytest.raises(OSError, match="Read-only"):
        (target / "x").touch()
    SystemMounter().unmount(target)
    SystemMounter().unmount(target)
    assert not is_mounted(SystemMounter(), target)


async def foreign(root: Path) -> None:
    """A mount of somebody else keeps an orphan's directory, is named once, and survives."""
    async with running(root) as manager:
        top = Path((await manager.mount(pod(DISK)))["disk"].host_path)
    theirs = top / "theirs"
    theirs.mkdir()
    SystemMounter().mount("tmpfs", theirs)
    (theirs / "data").write_text("precious")
    async with running(root) as manager:
        with pytest.raises(SyncError, match=f"still mounted: {theirs}"):
            await manager.remove_orphan(UID)
        assert not await manager.remove_orphan(UID)
        assert (theirs / "data").read_text() == "precious"
        SystemMounter().unmount(theirs)
        await manager.unmount(UID)
    assert list((root / "pods").iterdir()) == []


async def killed(root: Path) -> None:
    """Killed between any two steps, the next agent takes everything over, or removes it."""
    threads._SPARE_FOR = 0.0  # type: ignore[misc]  # they end with their work, so that it can be waited for
    for steps in range(30):
        mounter = DyingMounter(steps)
        with suppress_killed():
            async with running(root, mounter) as manager:
                await life(manager)
        for thread in threading.enumerate():
            if thread.name == "volumes":
                # A process that is killed has no threads that go on.
                thread.join()
        async with running(root) as manager:
            if steps % 2:
                await life(manager)
            else:
                await manager.unmount(UID)
        assert mounted_below(root) == [], steps
        assert list((root / "pods").iterdir()) == [], steps
        if mounter.left:
            return
    raise AssertionError("there are more steps than that")


@contextmanager
def suppress_killed() -> Iterator[None]:
    """The death of the agent is expected; other faults are not."""
    try:
        yield
    except BaseExceptionGroup as group:
        others = group.split(Killed)[1]
        if others is not None:
            raise others from None


async def life(manager: VolumeManager) -> None:
    """A pod comes and goes."""
    volumes = await manager.mount(pod(MEMORY, SECRET, DISK))
    assert (Path(volumes["secret"].host_path) / "password").read_bytes() == b"hunter2"
    await manager.sub_paths.make(volumes["disk"], "part")
    part: MountedVolume = volumes["disk"]
    await manager.sub_paths.prepare(UID, "main", 0, part, "part")
    await manager.unmount(UID)


async def refused(root: Path) -> None:
    """What cannot be mounted says what, and why."""
    with pytest.raises(MountError, match=f"mount nonsense on {root}: No such device"):
        SystemMounter().mount("nonsense", root)
    with pytest.raises(MountError, match=f"mount nonsense server:/x on {root}: "):
        SystemMounter().mount_with_helper("nonsense", root, source="server:/x", options=("ro",))


async def over_manifests(root: Path) -> None:
    """A manifest directory that is mounted over is another one, and is so watched."""
    manifests, other = root / "manifests", root / "other"
    for directory in (manifests, other):
        directory.mkdir()
        write_manifest(directory, directory.name)
    config = AgentConfig(
        root_dir=root / "root",
        pod_logs_dir=root / "logs",
        node_name="n1",
        node_ip="127.0.0.1",
        static_pod_path=manifests,
        file_check_frequency=1.0,
        image_gc_high_threshold_percent=100,
    )
    async with (
        open_embedded(SimulatedBackend()) as runtime,
        NodeAgent(config, runtime=runtime.runtime, images=runtime.images) as agent,
    ):
        await until_runs(agent, "manifests")
        await anyio.run_process(["mount", "--bind", str(other), str(manifests)])
        await until_runs(agent, "other")
        write_manifest(manifests, "edited")
        await until_runs(agent, "edited")
        await anyio.run_process(["umount", str(manifests)])
        await until_runs(agent, "manifests")


def write_manifest(directory: Path, tag: str) -> None:
    """The pod web, of this image."""
    container = f'{{name: main, image: "busybox:{tag}"}}'
    text = (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{container}]}}"
    )
    (directory / "web.yaml").write_text(text)


async def until_runs(agent: NodeAgent, tag: str) -> None:
    """Wait until the pod runs that image."""
    with anyio.fail_after(60):
        while [(pod.spec.containers[0].image, pod.status.phase) for pod in agent.pods()] != [
            (f"busybox:{tag}", "Running")
        ]:
            await anyio.sleep(0.02)


Scenario = Callable[[Path], Coroutine[Any, Any, None]]
SCENARIOS: Final[dict[str, Scenario]] = {
    "memory": memory,
    "sub_path": sub_path,
    "read_only": read_only,
    "foreign": foreign,
    "killed": killed,
    "refused": refused,
    "over_manifests": over_manifests,
}


def run_apart(scenario: str, directory: Path) -> None:
    """Run a scenario in a mount namespace of its own; its failure is an AssertionError."""
    own = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "-Urm")
    command = (*own, "--propagation", "private", sys.executable, __file__)
    done = subprocess.run(
        [*command, scenario, str(directory)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2])))
