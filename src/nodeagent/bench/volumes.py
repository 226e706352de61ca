"""What volumes cost: a pod with many of them, a change that many pods follow, and rest.

The volume manager alone, with objects in memory and files on a real disk. Mounts are only written
down, so that anybody can measure: a mount is one system call in a thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from nodeagent.api import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Volume,
    VolumeMount,
    VolumeProjection,
)
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.bench.children import work_dir
from nodeagent.bench.figures import BenchError, Figures
from nodeagent.testing import RecordedMounter
from nodeagent.volumes import VolumeManager
from nodeagent.volumes.content_kinds import content_plugins
from nodeagent.volumes.objects import NoObjects, NoValues
from nodeagent.volumes.plugin import PluginRegistry

_NAMESPACE: Final = "default"
_VALUE: Final = "x" * 100
_REPEATS: Final = 5
_TICK_S: Final = 0.001
_PATIENCE_S: Final = 60.0
_RESYNC_S: Final = 60.0
_IDLE_PER_POD: Final = 5


class _Objects(NoObjects):
    """ConfigMaps and Secrets with some keys each; those of one name are one object."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._config_maps: dict[str, ConfigMap] = {}
        self._secrets: dict[str, Secret] = {}

    async def get_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """One, made when it is first asked for."""
        del namespace
        if name not in self._config_maps:
            self.change(name, _VALUE)
        return self._config_maps[name]

    async def get_secret(self, namespace: str, name: str) -> Secret | None:
        """One, made when it is first asked for."""
        del namespace
        data = {f"key-{number}": _VALUE.encode() for number in range(self._keys)}
        return self._secrets.setdefault(name, Secret(data=data))

    def change(self, name: str, value: str) -> None:
        """Give a ConfigMap other values."""
        data = {f"key-{number}": value for number in range(self._keys)}
        self._config_maps[name] = ConfigMap(metadata=ObjectMeta(name=name), data=data)


async def run(volumes: int = 20, keys: int = 10, pods: int = 100, idle: int = 500) -> Figures:
    """Measure.

    Args:
        volumes: configMap, secret and projected volumes of one pod, in turn.
        keys: keys of each object.
        pods: pods with a volume of the same ConfigMap.
        idle: volumes that a node at rest has.

    Returns:
        ``set_up``: ``loop_ms`` (CPU of the loop's thread) and ``wall_ms`` of the median pod, and
        the ``longest_stall_ms`` of all; ``update``: ``swapped_ms`` from the change until the last
        pod has it; ``rest``: ``resync_ms`` of the loop's CPU for a resync of all volumes, and the
        ``cpu_percent`` that this is at one a minute.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: a change did not reach all pods in time.
    """
    if min(volumes, keys, pods, idle) < 1:
        msg = f"{volumes} volumes, {keys} keys, {pods} pods, {idle} at rest: no measure"
        raise ValueError(msg)
    sizes = {"volumes": volumes, "keys": keys, "pods": pods, "idle": idle}
    return {
        **sizes,
        "set_up": await _set_up(volumes, keys),
        "update": await _update(pods, keys),
        "rest": await _rest(idle, keys),
    }


async def _set_up(volumes: int, keys: int) -> Figures:
    loop_ms, wall_ms, stalls = [], [], []
    async with _manager(_Objects(keys)) as (manager, _):
        for number in range(_REPEATS + 1):
            pod = _pod(number, [_volume(index) for index in range(volumes)])
            async with _watching() as late:
                began, cpu = time.perf_counter(), time.thread_time()
                await manager.mount(pod)
                loop_ms.append((time.thread_time() - cpu) * 1000)
                wall_ms.append((time.perf_counter() - began) * 1000)
            stalls.append(max(late, default=0.0) * 1000)
    # The first pod pays for what is loaded only once.
    return {
        "loop_ms": _median(loop_ms[1:]),
        "wall_ms": _median(wall_ms[1:]),
        "longest_stall_ms": round(max(stalls[1:]), 2),
    }


async def _update(pods: int, keys: int) -> Figures:
    objects = _Objects(keys)
    async with _manager(objects) as (manager, root):
        for number in range(pods):
            await manager.mount(_pod(number, [_config_map("shared")]))
        files = list(root.glob("pods/*/volumes/kubernetes.io~configmap/*/key-0"))
        async with _watching() as late:
            objects.change("shared", "new")
            began = time.perf_counter()
            manager.object_changed(_NAMESPACE, "ConfigMap", "shared")
            while not await anyio.to_thread.run_sync(_all_say, files, "new"):
                if time.perf_counter() - began > _PATIENCE_S:
                    msg = f"the change did not reach {pods} pods within {_PATIENCE_S:g} s"
                    raise BenchError(msg)
                await anyio.sleep(0.005)
            swapped = (time.perf_counter() - began) * 1000
        stall = max(late, default=0.0) * 1000
        return {"swapped_ms": round(swapped, 1), "longest_stall_ms": round(stall, 2)}


async def _rest(volumes: int, keys: int) -> Figures:
    async with _manager(_Objects(keys)) as (manager, _):
        pods = [
            _pod(number, [_volume(index) for index in range(_IDLE_PER_POD)])
            for number in range(math.ceil(volumes / _IDLE_PER_POD))
        ]
        for pod in pods:
            await manager.mount(pod)
        await anyio.sleep(0.1)
        cpu = time.process_time()
        for pod in pods:
            await manager.mount(pod)
        await anyio.sleep(0.1)
        spent = time.process_time() - cpu
    return {"resync_ms": round(spent * 1000, 1), "cpu_percent": round(spent / _RESYNC_S * 100, 3)}


@asynccontextmanager
async def _manager(objects: _Objects) -> AsyncIterator[tuple[VolumeManager, Path]]:
    with work_dir() as root:
        plugins = PluginRegistry(content_plugins(objects, NoValues()))
        manager = VolumeManager(root, plugins=plugins, mounter=RecordedMounter())
        async with anyio.create_task_group() as tasks:
            await tasks.start(manager.run)
            yield manager, root
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _watching() -> AsyncIterator[list[float]]:
    """How late the loop is, in seconds, time after time."""
    late: list[float] = []

    async def look() -> None:
        while True:
            due = time.perf_counter() + _TICK_S
            await anyio.sleep(_TICK_S)
            late.append(time.perf_counter() - due)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        yield late
        tasks.cancel_scope.cancel()


def _volume(index: int) -> Volume:
    if index % 3 == 0:
        return _config_map(f"c-{index}")
    if index % 3 == 1:
        source = SecretVolumeSource(secret_name=f"s-{index}", default_mode=0o644)
        return Volume(name=f"s-{index}", secret=source)
    part = VolumeProjection(config_map=ConfigMapProjection(name=f"c-{index}"))
    projected = ProjectedVolumeSource(sources=(part,), default_mode=0o644)
    return Volume(name=f"p-{index}", projected=projected)


def _config_map(name: str) -> Volume:
    return Volume(name=name, config_map=ConfigMapVolumeSource(name=name, default_mode=0o644))


def _pod(number: int, volumes: Sequence[Volume]) -> Pod:
    mounts = tuple(VolumeMount(name=v.name, mount_path=f"/{v.name}") for v in volumes)
    container = Container(name="main", image="busybox", volume_mounts=mounts)
    metadata = ObjectMeta(name=f"pod-{number}", namespace=_NAMESPACE, uid=f"uid-{number}")
    return Pod(metadata=metadata, spec=PodSpec(volumes=tuple(volumes), containers=(container,)))


def _all_say(files: Sequence[Path], text: str) -> bool:
    return all(file.read_text() == text for file in files)


def _median(values: Sequence[float]) -> float:
    return round(sorted(values)[len(values) // 2], 2)
