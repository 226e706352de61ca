"""Where the values of variables come from (docs/behaviour/runtime.md, "Environment")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.runtime.fakes import FakeRuntime, make_container, make_pod, make_settings

from nodeagent.api import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    ObjectFieldSelector,
    Pod,
    Quantity,
    ResourceFieldSelector,
    ResourceRequirements,
    SecretEnvSource,
    SecretKeySelector,
)
from nodeagent.model import SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.downward import NodeValues, field_value, node_values, resource_value
from nodeagent.runtime.env_sources import read_sources
from nodeagent.runtime.environment import EnvironmentSources, build_environment
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.lookups import Lookups, NoObjects
from nodeagent.runtime.settings import HostFacts, RuntimeSettings

NODE = NodeValues("node1", ("192.168.0.5", "fd00::5"), {"cpu": Quantity("4")})
SOURCES = EnvironmentSources(
    ("10.0.0.7",),
    NODE,
    {"cm": {"k": "v", "A": "of-cm"}, "gone": None},
    {"s": {"k": b"\xff\x00bytes", "B": b"of-secret"}, "gone": None},
)


def variable(name: str, **source: Any) -> EnvVar:
    return EnvVar(name=name, value_from=EnvVarSource(**source))


def of_config_map(name: str, key: str, *, optional: bool | None = None) -> dict[str, Any]:
    ref = ConfigMapKeySelector(name=name, key=key, optional=optional)
    return {"config_map_key_ref": ref}


def of_secret(name: str, key: str, *, optional: bool | None = None) -> dict[str, Any]:
    return {"secret_key_ref": SecretKeySelector(name=name, key=key, optional=optional)}


def build(*env: EnvVar, sources: EnvironmentSources = SOURCES, **fields: Any) -> dict[str, str]:
    container = make_container(env=env, **fields)
    return build_environment(make_pod(container), container, sources)


class TestObjects:
    """docs/behaviour/runtime.md, "Environment"."""

    def test_keys_become_values_byte_for_byte(self) -> None:
        found = build(
            variable("A", **of_config_map("cm", "k")), variable("B", **of_secret("s", "k"))
        )
        assert found["A"] == "v"
        assert found["B"].encode(errors="surrogateescape") == b"\xff\x00bytes"

    @pytest.mark.parametrize(
        ("source", "trouble"),
        [
            (of_config_map("gone", "k"), 'configmap "gone" not found'),
            (of_config_map("cm", "x"), "couldn't find key x in ConfigMap default/cm"),
            (of_secret("gone", "k"), 'secret "gone" not found'),
            (of_secret("s", "x"), "couldn't find key x in Secret default/s"),
        ],
    )
    def test_what_is_missing_is_an_error_unless_it_is_optional(
        self, source: dict[str, Any], trouble: str
    ) -> None:
        with pytest.raises(ContainerStartError) as caught:
            build(variable("A", **source))
        assert (caught.value.reason, caught.value.message) == (Waiting.CONFIG, trouble)
        ((name, ref),) = source.items()
        optional = {name: msgspec.structs.replace(ref, optional=True)}
        assert build(EnvVar(name="A", value="kept"), variable("A", **optional)) == {"A": "kept"}
        assert build(variable("A", **optional)) == {}

    def test_whole_objects_come_first_and_later_ones_win(self) -> None:
        found = build(
            EnvVar(name="A", value="own"),
            EnvVar(name="REF", value="$(P_A) $(B)"),
            env_from=(
                EnvFromSource(config_map_ref=ConfigMapEnvSource(name="cm")),
                EnvFromSource(prefix="P_", config_map_ref=ConfigMapEnvSource(name="cm")),
                EnvFromSource(secret_ref=SecretEnvSource(name="s")),
                EnvFromSource(config_map_ref=ConfigMapEnvSource(name="gone", optional=True)),
                EnvFromSource(secret_ref=SecretEnvSource(name="gone", optional=True)),
            ),
        )
        assert found.pop("k") == "\udcff\x00bytes"
        assert found == {
            "A": "own",
            "B": "of-secret",
            "P_A": "of-cm",
            "P_k": "v",
            "REF": "of-cm of-secret",
        }

    @pytest.mark.parametrize(
        ("source", "trouble"),
        [
            (
                EnvFromSource(config_map_ref=ConfigMapEnvSource(name="gone")),
                'configmap "gone" not found',
            ),
            (EnvFromSource(secret_ref=SecretEnvSource(name="gone")), 'secret "gone" not found'),
        ],
    )
    def test_a_whole_object_that_is_missing_is_an_error(
        self, source: EnvFromSource, trouble: str
    ) -> None:
        with pytest.raises(ContainerStartError) as caught:
            build(env_from=(source,))
        assert caught.value.message == trouble


class TestFields:
    """docs/behaviour/runtime.md, "Downward values"."""

    POD = make_pod(service_account_name="robot")
    META = msgspec.structs.replace(
        POD.metadata, labels={"app": "web", "x.io/y": "z"}, annotations={"note": "a=b\n"}
    )

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("metadata.name", "web"),
            ("metadata.namespace", "default"),
            ("metadata.uid", "uid-1"),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['x.io/y']", "z"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['note']", "a=b\n"),
            ("spec.nodeName", "node1"),
            ("spec.serviceAccountName", "robot"),
            ("status.hostIP", "192.168.0.5"),
            ("status.hostIPs", "192.168.0.5,fd00::5"),
            ("status.podIP", "10.0.0.7"),
            ("status.podIPs", "10.0.0.7,fd01::7"),
        ],
    )
    def test_a_field_of_the_pod(self, path: str, value: str) -> None:
        pod = msgspec.structs.replace(self.POD, metadata=self.META)
        ips = ("fd01::7", "10.0.0.7", "10.0.0.8")
        assert field_value(pod, path, ips, NODE) == value
        ref = ObjectFieldSelector(api_version="v1", field_path=path)
        container = make_container(env=(variable("X", field_ref=ref),))
        sources = EnvironmentSources(ips, NODE)
        assert build_environment(pod, container, sources) == {"X": value}

    def test_on_the_nodes_network_the_addresses_are_the_nodes(self) -> None:
        pod = make_pod(host_network=True)
        assert field_value(pod, "status.podIPs", (), NODE) == "192.168.0.5,fd00::5"

    def test_what_is_not_known_yet_is_empty(self) -> None:
        for path in ("status.podIP", "status.podIPs", "status.hostIP", "spec.nodeName"):
            assert field_value(make_pod(), path, (), NodeValues()) == ""

    def test_the_name_of_the_node_in_the_spec_wins(self) -> None:
        assert field_value(make_pod(node_name="there"), "spec.nodeName", (), NODE) == "there"

    def test_a_field_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(ContainerStartError, match="unsupported fieldPath: status"):
            build(variable("X", field_ref=ObjectFieldSelector(field_path="status.phase")))


def amounts(
    limits: dict[str, str] | None = None, requests: dict[str, str] | None = None
) -> ResourceRequirements:
    return ResourceRequirements(
        limits={name: Quantity(value) for name, value in (limits or {}).items()},
        requests={name: Quantity(value) for name, value in (requests or {}).items()},
    )


class TestResources:
    """docs/behaviour/runtime.md, "Downward values"."""

    SMALL = make_container(
        "small",
        resources=amounts(
            limits={"cpu": "250m", "memory": "100Mi", "hugepages-2Mi": "4Mi"},
            requests={"cpu": "1100m", "memory": "1", "ephemeral-storage": "3Gi"},
        ),
    )
    BARE = make_container("bare")

    def value(self, resource: str, divisor: str | None = None, name: str = "", **spec: Any) -> str:
        pod = make_pod(self.SMALL, self.BARE, **spec)
        quantity = Quantity(divisor) if divisor else None
        selector = ResourceFieldSelector(container_name=name, resource=resource, divisor=quantity)
        settings = RuntimeSettings(root_dir=Path("/x"))
        host = HostFacts(cpus=4, memory_capacity=8 * 2**30, storage_capacity=100 * 2**30)
        return resource_value(pod, self.SMALL, selector, node_values(settings, host))

    @pytest.mark.parametrize(
        ("resource", "divisor", "value"),
        [
            ("limits.cpu", None, "1"),
            ("limits.cpu", "0", "1"),
            ("limits.cpu", "1m", "250"),
            ("requests.cpu", None, "2"),
            ("requests.cpu", "1m", "1100"),
            ("limits.memory", None, "104857600"),
            ("limits.memory", "1Mi", "100"),
            ("limits.memory", "1Gi", "1"),
            ("limits.memory", "1M", "105"),
            ("requests.memory", "1Mi", "1"),
            ("requests.ephemeral-storage", "1Gi", "3"),
            ("limits.hugepages-2Mi", "1Mi", "4"),
            ("requests.hugepages-2Mi", None, "0"),
        ],
    )
    def test_amounts_are_rounded_up_in_units_of_the_divisor(
        self, resource: str, divisor: str | None, value: str
    ) -> None:
        assert self.value(resource, divisor) == value

    def test_a_limit_that_is_not_set_is_the_pods_else_the_nodes(self) -> None:
        level = amounts(limits={"memory": "1Gi"})
        assert self.value("limits.memory", "1Gi", "bare") == "8"
        assert self.value("limits.memory", "1Gi", "bare", resources=level) == "1"
        assert self.value("limits.cpu", None, "bare", resources=level) == "4"
        assert self.value("limits.ephemeral-storage", "1Gi", "bare") == "100"
        assert self.value("requests.memory", None, "bare") == "0"

    @pytest.mark.parametrize(
        ("resource", "name", "trouble"),
        [
            ("limits.cpu", "nobody", "container nobody not found"),
            ("limits.a/b", "", "unsupported container resource: limits.a/b"),
            ("cpu", "", "unsupported container resource: cpu"),
        ],
    )
    def test_what_does_not_exist_is_an_error(self, resource: str, name: str, trouble: str) -> None:
        with pytest.raises(ValueError, match=trouble):
            self.value(resource, None, name)
        ref = ResourceFieldSelector(container_name=name, resource=resource)
        with pytest.raises(ContainerStartError, match=trouble):
            build(variable("X", resource_field_ref=ref))


def of_file(key: str, path: str = "env", *, optional: bool | None = None) -> dict[str, Any]:
    ref = FileKeySelector(volume_name="data", path=path, key=key, optional=optional)
    return {"file_key_ref": ref}


class Objects:
    """Two objects; counts who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        self.asked.append(f"{namespace}/{name}")
        return {"k": "v"} if name == "cm" else None

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        self.asked.append(f"{namespace}/{name}")
        if name == "away":
            raise SyncError("the API server does not answer")
        return {"k": b"v"} if name == "s" else None


async def read(
    tmp_path: Path, *env: EnvVar, objects: Objects | NoObjects | None = None, **fields: Any
) -> EnvironmentSources:
    container = make_container(env=env, **fields)
    volumes = {"data": MountedVolume("data", str(tmp_path))}
    return await read_sources(
        make_pod(container), container, (), NODE, objects or NoObjects(), volumes
    )


@pytest.mark.anyio
class TestReading:
    """docs/behaviour/runtime.md, "Environment", "Environment files"."""

    async def test_every_object_is_read_once(self, tmp_path: Path) -> None:
        objects = Objects()
        sources = await read(
            tmp_path,
            variable("A", **of_config_map("cm", "k")),
            variable("B", **of_config_map("cm", "other")),
            variable("C", **of_secret("gone", "k")),
            objects=objects,
            env_from=(
                EnvFromSource(config_map_ref=ConfigMapEnvSource(name="cm")),
                EnvFromSource(secret_ref=SecretEnvSource(name="s")),
            ),
        )
        assert sorted(objects.asked) == ["default/cm", "default/gone", "default/s"]
        assert sources.config_maps == {"cm": {"k": "v"}}
        assert sources.secrets == {"gone": None, "s": {"k": b"v"}}

    async def test_one_who_does_not_answer_is_the_trouble(self, tmp_path: Path) -> None:
        with pytest.raises(ContainerStartError, match="the API server does not answer") as caught:
            await read(tmp_path, variable("A", **of_secret("away", "k")), objects=Objects())
        assert caught.value.reason is Waiting.CONFIG

    async def test_without_anyone_to_ask_nothing_is_found(self, tmp_path: Path) -> None:
        sources = await read(tmp_path, variable("A", **of_config_map("cm", "k")))
        with pytest.raises(ContainerStartError, match='configmap "cm" not found'):
            build(variable("A", **of_config_map("cm", "k")), sources=sources)

    async def test_a_file_gives_values_and_optional_ones_are_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "env").write_text("# made by init\nA='1 2'\nB=''\n")
        env = (
            variable("X", **of_file("A")),
            variable("Y", **of_file("B")),
            variable("Z", **of_file("C", optional=True)),
            variable("N", **of_file("C", "none", optional=True)),
        )
        sources = await read(tmp_path, *env)
        assert build(*env, sources=sources) == {"X": "1 2", "Y": ""}

    @pytest.mark.parametrize(
        ("source", "text", "trouble"),
        [
            (of_file("C"), "A='1'", 'key "C" not found in file "env" of volume "data"'),
            (of_file("C", "none"), "", 'there is no file "none" of volume "data"'),
            (of_file("A" * 129), "A='1'", "key of 129 characters, 128 are allowed"),
            (of_file("A"), f"A='{'x' * 32769}'", "is longer than 32768 bytes"),
            (of_file("A"), "A=1", r"couldn't parse env file .*: line 1 is not of the form"),
        ],
    )
    async def test_a_file_that_does_not_give_the_value_is_an_error(
        self, tmp_path: Path, source: dict[str, Any], text: str, trouble: str
    ) -> None:
        (tmp_path / "env").write_text(text)
        with pytest.raises(ContainerStartError, match=trouble) as caught:
            build(variable("X", **source), sources=await read(tmp_path, variable("X", **source)))
        assert caught.value.reason is Waiting.CONFIG

    async def test_a_volume_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        ref = FileKeySelector(volume_name="other", path="env", key="A")
        with pytest.raises(ContainerStartError, match='cannot find the volume "other"'):
            await read(tmp_path, variable("X", file_key_ref=ref))


@pytest.mark.anyio
async def test_a_container_is_made_with_what_its_variables_refer_to(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    container: Container = make_container(
        args=("$(IP)",),
        env=(
            variable("IP", field_ref=ObjectFieldSelector(field_path="status.podIP")),
            variable("K", **of_config_map("cm", "k")),
        ),
    )
    pod: Pod = make_pod(container)
    settings = make_settings(tmp_path)
    manager = RuntimeManager(runtime, runtime, settings, lookups=Lookups(objects=Objects()))
    assert (await manager.sync_pod(pod, await runtime.status(), {})).error() is None
    config = runtime.newest("web").config
    assert {e.key: e.value for e in config.envs} == {"IP": b"10.0.0.7", "K": b"v"}
    assert config.args == ["10.0.0.7"]


@pytest.mark.anyio
async def test_a_missing_object_is_shown_until_it_is_there(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    container = make_container(env=(variable("K", **of_config_map("late", "k")),))
    manager = RuntimeManager(runtime, runtime, make_settings(tmp_path))
    result = await manager.sync_pod(make_pod(container), await runtime.status(), {})
    error = result.errors["web"]
    assert (error.reason, error.message) == (
        "CreateContainerConfigError",
        'configmap "late" not found',
    )
    assert not runtime.containers
