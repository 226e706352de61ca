"""The API source before a real API server (docs/behaviour/api-source.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from tests.e2e.cluster.control_plane import ControlPlane
from tests.unit.sources.api_lab import ApiLab

from nodeagent.kube.connect import open_clients
from nodeagent.kube.reflector import WATCH_SECONDS

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240), pytest.mark.anyio]

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }


async def in_thread(work: Callable[..., object], *arguments: object) -> None:
    await to_thread.run_sync(work, *arguments)


@asynccontextmanager
async def following(plane: ControlPlane, tmp_path: Path, node: str) -> AsyncIterator[ApiLab]:
    """A source of this node, with the node's own rights."""
    config = plane.node_kubeconfig(tmp_path / "kubeconfig", node)
    async with open_clients(config) as clients:
        lab = ApiLab(client=clients.main, node=node)
        async with lab.running():
            yield lab
    await in_thread(plane.forget, node)


async def test_pods_of_a_node_are_followed(plane: ControlPlane, tmp_path: Path) -> None:
    async with following(plane, tmp_path, "watch-one") as lab:
        await lab.names()
        await in_thread(plane.api.create, PODS, pod("followed", "watch-one"))
        await in_thread(plane.api.create, PODS, pod("of-another", "watch-two"))
        await lab.names("followed")
        await in_thread(plane.api.delete, f"{PODS}/followed")
        await lab.until(lambda: lab.snapshots[-1].pods[0].metadata.deletion_timestamp is not None)
        assert lab.told("ApiTrouble") == []
    await in_thread(plane.forget, "watch-two")


async def test_a_server_that_restarts_is_found_again(plane: ControlPlane, tmp_path: Path) -> None:
    async with following(plane, tmp_path, "watch-three") as lab:
        await lab.names()
        await in_thread(plane.server.kill)
        await lab.until(lambda: bool(lab.source.trouble))
        await in_thread(plane.server.start)
        await in_thread(plane.api.create, PODS, pod("later", "watch-three"))
        await lab.names("later")


async def test_a_quiet_watch_stays_up_to_date(plane: ControlPlane, tmp_path: Path) -> None:
    """The server ends a watch when it is asked to, and tells its version right before."""
    async with following(plane, tmp_path, "watch-four") as lab:
        await lab.names()
        reflector = lab.source.informer.reflector
        watches, version = reflector.watches, reflector.version
        await in_thread(plane.api.create, PODS, pod("elsewhere", "watch-five"))
        await lab.until(lambda: reflector.watches > watches, WATCH_SECONDS[1] + 20)
        assert int(reflector.version) > int(version)
        assert reflector.lists == 1
        assert lab.told("ApiTrouble") == []
    await in_thread(plane.forget, "watch-five")
