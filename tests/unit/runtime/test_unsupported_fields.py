"""No field of a pod is ignored silently (docs/behaviour/runtime.md, "Unsupported fields")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.runtime.fakes import make_container, make_pod

from nodeagent.api import (
    ConfigMapEnvSource,
    Container,
    ContainerPort,
    ContainerRestartRule,
    EmptyDirVolumeSource,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    FCVolumeSource,
    HostAlias,
    HostPathVolumeSource,
    Pod,
    PodDNSConfig,
    PodOS,
    PodResourceClaim,
    PodSecurityContext,
    PodSpec,
    Quantity,
    ResourceClaim,
    ResourceRequirements,
    SecurityContext,
    Sysctl,
    Toleration,
    Volume,
    VolumeDevice,
    VolumeMount,
    WindowsSecurityContextOptions,
)
from nodeagent.runtime.unsupported import RULES, Treatment, unsupported_fields


def _structs_inside(annotation: Any) -> set[type[msgspec.Struct]]:
    kind = msgspec.inspect.type_info(annotation)
    found: set[type[msgspec.Struct]] = set()
    todo = [kind]
    while todo:
        each = todo.pop()
        if isinstance(each, msgspec.inspect.StructType):
            found.add(each.cls)
        elif isinstance(each, msgspec.inspect.UnionType):
            todo += each.types
        elif isinstance(each, msgspec.inspect.VarTupleType):
            todo.append(each.item_type)
    return found


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_every_field_is_classified(kind: type[msgspec.Struct]) -> None:
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert RULES[kind].keys() == fields


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_what_is_looked_into_is_classified_as_well(kind: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(kind):
        if RULES[kind][field.name] is Treatment.INSIDE:
            inside = _structs_inside(field.type)
            assert inside
            assert inside <= RULES.keys()


def test_the_walk_begins_at_the_spec() -> None:
    assert PodSpec in RULES
    assert Container in RULES


def test_a_plain_pod_is_supported() -> None:
    container = make_container(
        command=("sleep",),
        args=("$(TIME)",),
        working_dir="/tmp",
        env=(EnvVar(name="TIME", value="10"), EnvVar(name="IP", value_from=EnvVarSource())),
        env_from=(EnvFromSource(config_map_ref=ConfigMapEnvSource(name="c")),),
        ports=(ContainerPort(container_port=80, host_port=8080, protocol="TCP"),),
        resources=ResourceRequirements(
            limits={
                "cpu": Quantity("1"),
                "memory": Quantity("1Gi"),
                "hugepages-2Mi": Quantity("2Mi"),
                "example.com/licence": Quantity("1"),
            },
            requests={"cpu": Quantity("100m"), "ephemeral-storage": Quantity("1Gi")},
        ),
        volume_mounts=(VolumeMount(name="data", mount_path="/data", read_only=True),),
        termination_message_path="/dev/termination-log",
        termination_message_policy="FallbackToLogsOnError",
        security_context=SecurityContext(
            privileged=True,
            run_as_non_root=False,
            allow_privilege_escalation=False,
            windows_options=WindowsSecurityContextOptions(run_as_user_name="me"),
        ),
        stdin=True,
        tty=True,
    )
    pod = make_pod(
        container,
        volumes=(
            Volume(name="data", empty_dir=EmptyDirVolumeSource()),
            Volume(name="host", host_path=HostPathVolumeSource(path="/srv", type="Directory")),
        ),
        host_network=True,
        enable_service_links=True,
        security_context=PodSecurityContext(
            run_as_user=1,
            run_as_non_root=True,
            fs_group=2,
            sysctls=(Sysctl(name="a", value="b"),),
            windows_options=WindowsSecurityContextOptions(),
        ),
        runtime_class_name="gvisor",
        overhead={"cpu": Quantity("10m")},
        resources=ResourceRequirements(limits={"memory": Quantity("1Gi")}),
        host_pid=True,
        host_ipc=True,
        host_aliases=(HostAlias(ip="10.0.0.1", hostnames=("db",)),),
        dns_config=PodDNSConfig(nameservers=("10.0.0.2",)),
        tolerations=(Toleration(operator="Exists", effect="NoExecute"),),
        scheduler_name="default-scheduler",
        node_name="here",
        hostname="web",
        os=PodOS(name="linux"),
        share_process_namespace=True,
        host_users=False,
        init_containers=(make_container("first"), make_container("side", restart_policy="Always")),
        ephemeral_containers=(
            EphemeralContainer(name="debug", image="busybox", target_container_name="web"),
        ),
    )
    assert unsupported_fields(pod) == []


_CASES: list[tuple[str, Pod]] = [
    (
        "spec.initContainers[0].volumeDevices",
        make_pod(init_containers=(make_container("i", volume_devices=(VolumeDevice(name="d"),)),)),
    ),
    (
        "spec.ephemeralContainers[0].volumeDevices",
        make_pod(
            ephemeral_containers=(
                EphemeralContainer(name="debug", volume_devices=(VolumeDevice(name="d"),)),
            )
        ),
    ),
    ("spec.resourceClaims", make_pod(resource_claims=(PodResourceClaim(name="gpu"),))),
    (
        "spec.resources.limits",
        make_pod(resources=ResourceRequirements(limits={"ephemeral-storage": Quantity("1")})),
    ),
    ("spec.os.name", make_pod(os=PodOS(name="windows"))),
    (
        "spec.volumes[1].fc",
        make_pod(
            volumes=(
                Volume(name="a", empty_dir=EmptyDirVolumeSource()),
                Volume(name="b", fc=FCVolumeSource(lun=0)),
            )
        ),
    ),
]

_CONTAINER_CASES: list[tuple[str, dict[str, Any]]] = [
    (
        "resources.limits",
        {"resources": ResourceRequirements(limits={"kubernetes.io/x": Quantity("1")})},
    ),
    (
        "resources.limits",
        {"resources": ResourceRequirements(limits={"ephemeral-storage": Quantity("1Gi")})},
    ),
    ("resources.claims", {"resources": ResourceRequirements(claims=(ResourceClaim(name="c"),))}),
    (
        "restartPolicyRules[0].action",
        {"restart_policy_rules": (ContainerRestartRule(action="Explode"),)},
    ),
]


@pytest.mark.parametrize(("path", "pod"), _CASES)
def test_a_field_of_the_pod_is_named(path: str, pod: Pod) -> None:
    assert unsupported_fields(pod) == [path]


@pytest.mark.parametrize(("path", "fields"), _CONTAINER_CASES)
def test_a_field_of_a_container_is_named(path: str, fields: dict[str, Any]) -> None:
    pod = make_pod(make_container("first"), make_container("second", **fields))
    assert unsupported_fields(pod) == [f"spec.containers[1].{path}"]


def test_all_fields_are_named_at_once() -> None:
    devices = (VolumeDevice(name="d"),)
    pod = make_pod(
        make_container(
            volume_devices=devices,
            resources=ResourceRequirements(limits={"kubernetes.io/x": Quantity("1")}),
        ),
        resource_claims=(PodResourceClaim(name="gpu"),),
    )
    assert unsupported_fields(pod) == [
        "spec.containers[0].resources.limits",
        "spec.containers[0].volumeDevices",
        "spec.resourceClaims",
    ]
