"""Whole agents whose pods refer to ConfigMaps and Secrets of an API server."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import ClusterRing, bound, cluster_ring

from nodeagent.api import (
    ConfigMapKeySelector,
    ConfigMapVolumeSource,
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    LocalObjectReference,
    Pod,
    ProjectedVolumeSource,
    SecretKeySelector,
    ServiceAccountTokenProjection,
    Volume,
    VolumeMount,
    VolumeProjection,
)
from nodeagent.api.env import ConfigMapEnvSource
from nodeagent.clock import SystemClock
from nodeagent.embedded import SimulatedBackend
from nodeagent.objects.tokens import Tokens
from nodeagent.testing import ApiStore, StoreClient, make_pod
from nodeagent.wiring.objects import AccountTokens

pytestmark = pytest.mark.anyio

HIDDEN = "xyzzy-plugh"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name: str, **data: str) -> dict[str, Any]:
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": coded}


def reader(name: str = "web", *, optional: bool | None = None) -> Pod:
    """A pod whose variables come from a ConfigMap and a Secret."""
    key = ConfigMapKeySelector(name="settings", key="color", optional=optional)
    password = SecretKeySelector(name="login", key="password", optional=optional)
    main = Container(
        name="main",
        image="busybox:1.36",
        env_from=(
            EnvFromSource(
                prefix="ALL_",
                config_map_ref=ConfigMapEnvSource(name="settings", optional=optional),
            ),
        ),
        env=(
            EnvVar(name="COLOR", value_from=EnvVarSource(config_map_key_ref=key)),
            EnvVar(name="PASSWORD", value_from=EnvVarSource(secret_key_ref=password)),
        ),
    )
    return make_pod(name, main, node_name="node1")


def environment(node: ClusterRing, pod: str) -> dict[str, str]:
    (container,) = node.containers(pod, running=True)
    return {pair.key: pair.value.decode() for pair in container.config.envs}


async def test_ob5_a_container_waits_for_its_objects_and_goes_on_by_itself(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, reader()) as node:
        await node.until(lambda: node.recorded("Failed"))
        waiting = node.status("web").state.waiting
        assert waiting is not None
        assert (waiting.reason, waiting.message) == (
            "CreateContainerConfigError",
            'configmap "settings" not found',
        )
        node.store.create(config_map("settings", color="red"))
        await node.until(lambda: 'secret "login" not found' in str(node.status("web").state))
        began = anyio.current_time()
        node.store.create(secret("login", password=HIDDEN))
        await node.api_running("web")
        assert anyio.current_time() - began < 5
        found = environment(node, "web")
        assert (found["COLOR"], found["ALL_color"], found["PASSWORD"]) == ("red", "red", HIDDEN)


async def test_ob5_an_optional_object_is_left_out(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, reader(optional=True)) as node:
        await node.api_running("web")
        assert not {"COLOR", "ALL_color", "PASSWORD"} & environment(node, "web").keys()


async def test_ob6_a_new_container_gets_the_new_value(tmp_path: Path) -> None:
    store, backend = ApiStore(), SimulatedBackend()
    store.create(config_map("settings", color="red"))
    store.create(secret("login", password=HIDDEN))
    async with cluster_ring(tmp_path, reader(), store=store, backend=backend) as node:
        await node.api_running("web")
        store.edit("configmaps", "settings", lambda item: item.update(data={"color": "blue"}))
        await node.until(lambda: node.recorded("ObjectChanged"))
        await anyio.sleep(5)
        assert environment(node, "web")["COLOR"] == "red"
        (running,) = node.containers("web", running=True)
        backend.end(running, 1)
        await node.until(lambda: node.ids("web") not in ([], [running.id]))
        assert environment(node, "web")["COLOR"] == "blue"


async def test_ob4_a_secret_is_in_no_record_and_no_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ApiStore()
    store.create(config_map("settings", color="red"))
    store.create(secret("login", password=HIDDEN))
    async with cluster_ring(tmp_path, reader(), store=store) as node:
        await node.api_running("web")
        store.edit("secrets", "login", lambda item: item.update(type="changed"))
        await anyio.sleep(120)
        assert HIDDEN not in "".join(map(str, node.agent.journal.select()))
        assert HIDDEN not in str(node.agent.pods())
        assert HIDDEN not in str(node.store.all("events"))
    kept = [p.read_text() for p in (tmp_path / "root").rglob("*") if p.is_file()]
    assert HIDDEN not in "".join(kept)
    out = capsys.readouterr()
    assert HIDDEN not in out.out + out.err


@pytest.mark.parametrize("strategy", ["Get", "Cache"])
async def test_ob20_objects_come_in_other_ways(tmp_path: Path, strategy: str) -> None:
    store = ApiStore()
    store.create(config_map("settings", color="red"))
    store.create(secret("login", password=HIDDEN))
    setting: dict[str, Any] = {"config_map_and_secret_change_detection_strategy": strategy}
    async with cluster_ring(tmp_path, reader(), store=store, **setting) as node:
        await node.api_running("web")
        assert environment(node, "web")["PASSWORD"] == HIDDEN
        watched = [r for r in store.requests if r.method == "WATCH" and "configmaps" in r.path]
        assert watched == []


async def test_ob2_what_no_pod_needs_any_more_is_not_watched(tmp_path: Path) -> None:
    store = ApiStore()
    store.create(config_map("settings", color="red"))
    store.create(secret("login", password=HIDDEN))
    async with cluster_ring(tmp_path, reader(), store=store) as node:
        await node.api_running("web")
        many = store.watching
        store.delete("pods", "web", grace=1)
        await node.api_gone("web")
        await node.until(lambda: store.watching == many - 2)


async def test_ob7_a_pull_secret_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, pulling()) as node:
        await node.api_running("web")
        said = "Unable to retrieve some image pull secrets (pull)"
        assert any(said in why for why in node.recorded("FailedToRetrieveImagePullSecret"))


async def test_ob7_a_pull_secret_is_used(tmp_path: Path) -> None:
    store = ApiStore()
    login = {"auths": {"docker.io": {"username": "me", "password": HIDDEN}}}
    store.create(
        {
            **secret("pull", **{".dockerconfigjson": json.dumps(login)}),
            "type": "kubernetes.io/dockerconfigjson",
        }
    )
    async with cluster_ring(tmp_path, pulling(), store=store) as node:
        await node.api_running("web")
        assert not node.recorded("FailedToRetrieveImagePullSecret")
        records = [
            p.read_text() for p in (tmp_path / "root/image_manager").rglob("*") if p.is_file()
        ]
        assert '"name":"pull"' in "".join(records).replace(" ", "")


def pulling() -> Pod:
    return bound("web", image_pull_secrets=(LocalObjectReference(name="pull"),))


async def test_ob8_a_plugin_gets_a_token_of_the_account_and_its_annotations() -> None:
    store = ApiStore()
    account = {"name": "builder", "namespace": "default", "annotations": {"role": "arn:1"}}
    made = store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    uid = store.create(make_pod("web"))["metadata"]["uid"]
    pod = make_pod("web", uid=uid, service_account_name="builder")
    client = StoreClient(store)
    accounts = AccountTokens(client, Tokens(client, SystemClock()))
    found = await accounts.token(pod, "registry")
    assert found is not None
    assert (found.namespace, found.name, found.uid) == (
        "default",
        "builder",
        made["metadata"]["uid"],
    )
    assert found.annotations == {"role": "arn:1"}
    (asked,) = [r.body for r in store.requests if r.path.endswith("/token")]
    assert dict(asked or {})["spec"]["audiences"] == ["registry"]
    store.delete("serviceaccounts", "builder")
    assert await accounts.token(pod, "registry") is None


def colour(store: ApiStore, value: str) -> None:
    store.edit("configmaps", "settings", lambda item: item.update(data={"color": value}))


async def test_ob6_volumes_follow_their_objects(tmp_path: Path) -> None:
    store = ApiStore()
    store.create(config_map("settings", color="red"))
    source = ConfigMapVolumeSource(name="settings", default_mode=0o644)
    volume = Volume(name="settings", config_map=source)
    main = Container(
        name="main",
        image="busybox:1.36",
        volume_mounts=(VolumeMount(name="settings", mount_path="/settings"),),
    )
    pods = [make_pod(name, main, node_name="node1", volumes=(volume,)) for name in ("one", "two")]
    async with cluster_ring(tmp_path, *pods, store=store) as node:
        files = []
        for name in ("one", "two"):
            await node.api_running(name)
            (container,) = node.containers(name, running=True)
            paths = [m.host_path for m in container.config.mounts]
            (path,) = (p for p in paths if p.endswith("/settings"))
            files.append(Path(path) / "color")
        assert [file.read_text() for file in files] == ["red", "red"]
        for number in range(100):
            colour(store, f"color-{number}")
        began = anyio.current_time()
        await node.until(lambda: [file.read_text() for file in files] == ["color-99"] * 2)
        assert anyio.current_time() - began < 5


@pytest.mark.usefixtures("recorded_mounts")
async def test_ot1_a_token_reaches_its_volume(tmp_path: Path) -> None:
    store = ApiStore()
    account = {"name": "default", "namespace": "default"}
    store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    part = VolumeProjection(
        service_account_token=ServiceAccountTokenProjection(path="token", expiration_seconds=600)
    )
    volume = Volume(
        name="token", projected=ProjectedVolumeSource(sources=(part,), default_mode=0o644)
    )
    main = Container(
        name="main",
        image="busybox:1.36",
        volume_mounts=(VolumeMount(name="token", mount_path="/token"),),
    )
    pod = make_pod("web", main, node_name="node1", volumes=(volume,))
    async with cluster_ring(tmp_path, pod, store=store) as node:
        await node.api_running("web")
        (container,) = node.containers("web", running=True)
        (path,) = (m.host_path for m in container.config.mounts if m.host_path.endswith("/token"))
        assert (Path(path) / "token").read_text().startswith("token-")
        assert store.count("POST", "token") == 1
