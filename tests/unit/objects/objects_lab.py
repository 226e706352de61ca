"""An API server in memory and pods that refer to objects in it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from nodeagent.api import Container, EnvFromSource, Pod
from nodeagent.api.env import ConfigMapEnvSource, SecretEnvSource
from nodeagent.journal import Journal
from nodeagent.model import PodUID
from nodeagent.objects import ObjectStore
from nodeagent.objects.strategy import Strategy
from nodeagent.objects.watched import WatchedObjects
from nodeagent.testing import ApiStore, StoreClient, make_pod


def config_map(name: str = "settings", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


def secret(name: str = "login", **data: str) -> dict[str, Any]:
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "type": "Opaque",
        "data": coded,
    }


def refers(name: str = "web", *, maps: tuple[str, ...] = (), secrets: tuple[str, ...] = ()) -> Pod:
    """A pod whose variables come from these ConfigMaps and Secrets."""
    sources = (
        *(EnvFromSource(config_map_ref=ConfigMapEnvSource(name=n)) for n in maps),
        *(EnvFromSource(secret_ref=SecretEnvSource(name=n)) for n in secrets),
    )
    return make_pod(name, Container(name="main", image="busybox:1.36", env_from=sources))


def uid(pod: Pod) -> PodUID:
    return PodUID(pod.metadata.uid)


def change(store: ApiStore, name: str, *, plural: str = "configmaps", **data: str) -> None:
    store.edit(plural, name, lambda item: item.update(data=data))


@asynccontextmanager
async def watching(
    store: ApiStore, *pods: Pod, client: StoreClient | None = None
) -> AsyncIterator[tuple[ObjectStore, WatchedObjects]]:
    """A store that watches what these pods refer to."""
    strategy = WatchedObjects(client or StoreClient(store), Journal())
    async with running(strategy, *pods) as objects:
        yield objects, strategy


@asynccontextmanager
async def running(strategy: Strategy, *pods: Pod) -> AsyncIterator[ObjectStore]:
    objects = ObjectStore(strategy)
    for pod in pods:
        objects.register(pod)
    async with anyio.create_task_group() as tasks:
        await tasks.start(objects.run)
        yield objects
        tasks.cancel_scope.cancel()


class LoopClock:
    """A wall clock that goes with the loop."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=anyio.current_time())

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 1e9)
