"""Volumes while the API server is away: what the pods had they have again.

docs/offline.md; docs/behaviour/csi.md, "Without the API server"; docs/behaviour/volumes.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import ClusterRing, Line, node_on
from ring import simulated
from storage_lab import DRIVER, attach, bind, claiming, csi_driver, driver_on, mounting

from nodeagent.api import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    Pod,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import ApiStore, RecordedMounter

pytestmark = pytest.mark.anyio


def content_pod(name: str, *, token: bool = True) -> Pod:
    """A pod with a ConfigMap, or with what each pod of a service account gets."""
    source = ConfigMapVolumeSource(name="settings", default_mode=0o644)
    volume = Volume(name="v", config_map=source)
    if token:
        parts = (
            VolumeProjection(service_account_token=ServiceAccountTokenProjection(path="token")),
            VolumeProjection(config_map=ConfigMapProjection(name="settings")),
        )
        projected = ProjectedVolumeSource(sources=parts, default_mode=0o644)
        volume = Volume(name="v", projected=projected)
    return mounting(name, volumes=(volume,), service_account_name="default")


def with_settings(store: ApiStore, mode: str = "fast") -> None:
    """Make the ConfigMap, and the account of the pods."""
    account = {"name": "default", "namespace": "default"}
    store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    metadata = {"name": "settings", "namespace": "default"}
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mode": mode}}
    store.create(found)


def drivers(store: ApiStore) -> list[str]:
    """The drivers that the CSINode shows."""
    return [one["name"] for node in store.all("csinodes") for one in node["spec"]["drivers"]]


def crash(node: ClusterRing, backend: SimulatedBackend, name: str) -> None:
    """End the running container of a pod."""
    (record,) = node.containers(name, running=True)
    backend.end(record, 9)


async def again(node: ClusterRing, name: str) -> None:
    """Wait until the pod's container runs a second time."""

    def attempts() -> list[int]:
        return [record.metadata.attempt for record in node.containers(name, running=True)]

    await node.until(lambda: attempts() == [1], 120)


def saved(tmp_path: Path, section: str) -> Any:
    """What the checkpoint holds."""
    text = (tmp_path / "root" / "checkpoints" / "runtime.json").read_text()
    return json.loads(text)["content"]["sections"].get(section)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "refusing"])
async def test_yo1_yo2_yo3_a_container_with_a_claim_starts_again_after_a_restart(
    tmp_path: Path, silent: bool
) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    bind(line.store)
    line.store.create(csi_driver(attachRequired=True))
    line.store.create(claiming())
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            async with driver_on(node, tmp_path):
                await node.until(lambda: bool(node.node()["status"].get("volumesInUse")))
                attach(line.store, "h-pv-data", lun="7")
                await node.api_running("web")
                await anyio.sleep(10)
            await node.until(lambda: drivers(line.store) == [])
        if silent:
            line.fall_silent()
        else:
            line.cut()
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await node.running("web")
            crash(node, backend, "web")
            # Without its driver the volume cannot be had, server or no server.
            await anyio.sleep(60)
            assert not node.containers("web", running=True)
            async with driver_on(node, tmp_path) as driver:
                await again(node, "web")
                assert driver.last("NodePublishVolume").publish_context == {"lun": "7"}
                line.heal()
                await node.api_running("web")
                await node.until(lambda: drivers(line.store) == [DRIVER])
                line.store.delete("pods", "web")
                await node.api_gone("web")
                await node.until(lambda: saved(tmp_path, "volumes") == {})


async def test_a_machine_that_restarts_meanwhile_has_its_claims_again(tmp_path: Path) -> None:
    line = Line(ApiStore())
    bind(line.store)
    line.store.create(csi_driver())
    line.store.create(claiming())
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
        driver_on(node, tmp_path),
    ):
        await node.api_running("web")
        await anyio.sleep(10)
    line.cut()
    after = tmp_path / "after"
    after.mkdir()
    async with (
        simulated(after) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
        driver_on(node, tmp_path) as driver,
    ):
        await node.until(lambda: len(node.containers("web", running=True)) == 1, 120)
        assert driver.count()["NodePublishVolume"] == 1


async def test_yo4_a_volume_that_needs_a_secret_to_be_made_again_waits(tmp_path: Path) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    metadata = {"name": "login", "namespace": "default"}
    line.store.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"k": "djE="}}
    )
    bind(line.store, csi={"nodePublishSecretRef": metadata})
    line.store.create(csi_driver())
    line.store.create(claiming())
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line) as node, driver_on(node, tmp_path):
            await node.api_running("web")
            await anyio.sleep(10)
        assert "djE=" not in (tmp_path / "root" / "checkpoints" / "runtime.json").read_text()
        line.cut()
        async with node_on(runtime, endpoint, tmp_path, line) as node, driver_on(node, tmp_path):
            await node.running("web")
            crash(node, backend, "web")
            await anyio.sleep(60)
            assert not node.containers("web", running=True)
            line.heal()
            await again(node, "web")


async def test_what_the_server_refuses_is_not_taken_from_memory(tmp_path: Path) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    bind(line.store)
    line.store.create(csi_driver())
    line.store.create(claiming())
    async with (
        simulated(tmp_path, backend) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
        driver_on(node, tmp_path),
    ):
        await node.api_running("web")
        await anyio.sleep(10)
        assert saved(tmp_path, "volumes")
        line.store.delete("persistentvolumeclaims", "data")
        await anyio.sleep(120)
        assert list(saved(tmp_path, "volumes")) == ["/api/v1/persistentvolumes/pv-data"]


@pytest.mark.parametrize("token", [True, False], ids=["projected", "configmap"])
async def test_files_that_an_earlier_agent_wrote_will_do(tmp_path: Path, token: bool) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    with_settings(line.store)
    line.store.create(content_pod("web", token=token))
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await node.api_running("web")
            await anyio.sleep(10)
        line.cut()
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await node.running("web")
            crash(node, backend, "web")
            await again(node, "web")
            (container,) = node.containers("web", running=True)
            (mount,) = [m for m in container.config.mounts if m.container_path == "/data"]
            files = Path(mount.host_path)
            assert (files / "mode").read_text() == "fast"

            def slow(found: dict[str, Any]) -> None:
                found["data"] = {"mode": "slow"}

            line.store.edit("configmaps", "settings", slow)
            line.heal()
            await node.until(lambda: (files / "mode").read_text() == "slow", 180)


async def test_what_lay_in_memory_is_waited_for_after_a_restart_of_the_machine(
    tmp_path: Path, recorded_mounts: RecordedMounter
) -> None:
    line = Line(ApiStore())
    with_settings(line.store)
    line.store.create(content_pod("web"))
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.api_running("web")
        await anyio.sleep(10)
    line.cut()
    for point in recorded_mounts.mounts(tmp_path):
        recorded_mounts.unmount(Path(point.path))
    after = tmp_path / "after"
    after.mkdir()
    async with (
        simulated(after) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await anyio.sleep(120)
        assert not node.containers("web")
        line.heal()
        await node.until(lambda: len(node.containers("web", running=True)) == 1, 120)
