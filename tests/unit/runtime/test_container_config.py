"""The container's configuration (docs/behaviour/runtime.md, "Container")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.runtime.fakes import IMAGE, make_container, make_pod, make_settings

from nodeagent.api import (
    Container,
    ContainerPort,
    EnvVar,
    ExecAction,
    Lifecycle,
    LifecycleHandler,
    VolumeMount,
)
from nodeagent.model.volumes import MountedVolume
from nodeagent.proto.runtime import v1
from nodeagent.runtime.container_config import (
    ContainerInputs,
    build_container_config,
    container_annotations,
)
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.mounts import ManagedFiles, MountInputs, build_mounts
from nodeagent.runtime.security import MASKED_PATHS, READONLY_PATHS
from nodeagent.runtime.settings import HostFacts

VOLUMES = {
    "data": MountedVolume("data", "/host/data"),
    "fixed": MountedVolume("fixed", "/host/fixed", read_only=True),
}
MOUNTS = MountInputs(volumes=VOLUMES)
NO_FILES = ManagedFiles()


def build(
    container: Container, attempt: int = 0, image: v1.Image | None = None, **spec: Any
) -> v1.ContainerConfig:
    inputs = ContainerInputs(attempt, "sha256:abc", image, MOUNTS, NO_FILES)
    pod = make_pod(container, **spec)
    return build_container_config(
        pod, container, inputs, make_settings(Path("/x")), HostFacts(thermal_throttle=("/hot",))
    )


def security(config: v1.ContainerConfig) -> v1.LinuxContainerSecurityContext:
    assert config.linux is not None
    assert config.linux.security_context is not None
    return config.linux.security_context


def test_it_names_container_attempt_image_and_log() -> None:
    config = build(make_container(), attempt=4)
    assert config.metadata == v1.ContainerMetadata(name="web", attempt=4)
    assert config.image == v1.ImageSpec(image="sha256:abc", user_specified_image=IMAGE)
    assert config.log_path == "web/4.log"


def test_it_carries_four_labels_and_no_more() -> None:
    """docs/behaviour/runtime.md, "Labels and annotations"."""
    assert build(make_container()).labels == {
        "io.kubernetes.container.name": "web",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "uid-1",
    }


def test_command_arguments_and_environment_are_byte_exact() -> None:
    values = {"A": "a=b 'c' \"d\"\n$X", "F": "🦊", "EMPTY": ""}
    container = make_container(
        command=("/bin/sh", "-c"),
        args=("echo $(A) $$(A) $A",),
        working_dir="/srv",
        env=tuple(EnvVar(name=name, value=value) for name, value in values.items()),
        stdin=True,
        tty=True,
    )
    config = build(container)
    assert config.command == ["/bin/sh", "-c"]
    assert config.args == [f"echo {values['A']} $(A) $A"]
    assert {e.key: e.value.decode() for e in config.envs} == values
    assert config.working_dir == "/srv"
    assert (config.stdin, config.stdin_once, config.tty) == (True, False, True)


def test_annotations_keep_what_is_needed_when_the_spec_is_gone() -> None:
    container = make_container(
        termination_message_path="/dev/termination-log",
        termination_message_policy="File",
        ports=(ContainerPort(name="http", container_port=80, protocol="TCP"),),
        lifecycle=Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("true",)))),
    )
    pod = make_pod(container)
    found = container_annotations(pod, container, 2)
    ports = json.loads(found.pop("io.kubernetes.container.ports"))
    assert ports == [{"name": "http", "containerPort": 80, "protocol": "TCP"}]
    hook = json.loads(found.pop("io.kubernetes.container.preStopHandler"))
    assert hook == {"exec": {"command": ["true"]}}
    assert len(found.pop("io.kubernetes.container.hash")) <= 8
    assert found == {
        "io.kubernetes.container.restartCount": "2",
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.pod.terminationGracePeriod": "30",
    }


def test_the_deletion_grace_is_kept_only_when_there_is_one() -> None:
    pod = make_pod(termination_grace_period_seconds=None)
    container = pod.spec.containers[0]
    assert not [k for k in container_annotations(pod, container, 0) if "GracePeriod" in k]
    meta = msgspec.structs.replace(pod.metadata, deletion_grace_period_seconds=7)
    pod = msgspec.structs.replace(pod, metadata=meta)
    found = container_annotations(pod, container, 0)
    assert found["io.kubernetes.pod.deletionGracePeriod"] == "7"


def mount(name: str = "data", path: str = "/data", **fields: Any) -> VolumeMount:
    return VolumeMount(name=name, mount_path=path, **fields)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (mount(), v1.Mount(container_path="/data", host_path="/host/data")),
        (mount(path="rel/x"), v1.Mount(container_path="/rel/x", host_path="/host/data")),
        (
            mount(read_only=True),
            v1.Mount(container_path="/data", host_path="/host/data", readonly=True),
        ),
        (
            mount("fixed"),
            v1.Mount(container_path="/data", host_path="/host/fixed", readonly=True),
        ),
        (
            mount(mount_propagation="HostToContainer"),
            v1.Mount(
                container_path="/data",
                host_path="/host/data",
                propagation=v1.MountPropagation.PROPAGATION_HOST_TO_CONTAINER,
            ),
        ),
        (
            mount(mount_propagation="Bidirectional"),
            v1.Mount(
                container_path="/data",
                host_path="/host/data",
                propagation=v1.MountPropagation.PROPAGATION_BIDIRECTIONAL,
            ),
        ),
        (
            mount(mount_propagation="None"),
            v1.Mount(container_path="/data", host_path="/host/data"),
        ),
    ],
)
def test_a_volume_is_mounted_as_asked(given: VolumeMount, expected: v1.Mount) -> None:
    container = make_container(volume_mounts=(given,))
    assert build_mounts(container, MOUNTS, NO_FILES) == [expected]


def test_volumes_come_first_then_the_hosts_file_then_the_termination_log() -> None:
    container = make_container(
        volume_mounts=(mount(path="/b"), mount("fixed", "/a")),
        termination_message_path="/dev/termination-log",
    )
    files = ManagedFiles(Path("/pods/etc-hosts"), Path("/pods/log"))
    made = build_mounts(container, MOUNTS, files)
    assert [m.container_path for m in made] == ["/b", "/a", "/etc/hosts", "/dev/termination-log"]
    assert [m.selinux_relabel for m in made] == [False, False, True, True]


def test_a_pod_that_mounts_its_own_hosts_file_keeps_it() -> None:
    container = make_container(volume_mounts=(mount(path="/etc/hosts"),))
    files = ManagedFiles(Path("/pods/etc-hosts"), None)
    (only,) = build_mounts(container, MOUNTS, files)
    assert only.host_path == "/host/data"


def test_a_volume_that_is_not_there_is_a_configuration_error() -> None:
    says = 'cannot find volume "missing" to mount into container "web"'
    with pytest.raises(ContainerStartError, match=says) as caught:
        build(make_container(volume_mounts=(mount("missing"),)))
    assert caught.value.reason is Waiting.CONFIG


@pytest.mark.parametrize(
    ("image", "uid", "username"),
    [
        (None, None, ""),
        (v1.Image(id="x"), None, ""),
        (v1.Image(id="x", uid=v1.Int64Value(value=1000)), 1000, ""),
        (v1.Image(id="x", uid=v1.Int64Value(value=0)), 0, ""),
        (v1.Image(id="x", username="nobody"), None, "nobody"),
    ],
)
def test_the_images_user_is_passed_on(
    image: v1.Image | None, uid: int | None, username: str
) -> None:
    context = security(build(make_container(), image=image))
    assert context.run_as_user == (None if uid is None else v1.Int64Value(value=uid))
    assert context.run_as_username == username


def test_the_default_security_settings() -> None:
    """docs/behaviour/runtime.md, "Security"."""
    context = security(build(make_container(), host_network=True))
    assert not context.privileged
    assert not context.readonly_rootfs
    assert not context.no_new_privs
    assert context.masked_paths == [*MASKED_PATHS, "/hot"]
    assert context.readonly_paths == list(READONLY_PATHS)
    assert context.seccomp == v1.SecurityProfile(
        profile_type=v1.SecurityProfileProfileType.Unconfined
    )
    assert context.namespace_options is not None
    assert context.namespace_options.network is v1.NamespaceMode.NODE


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        (None, v1.Signal.RUNTIME_DEFAULT),
        ("SIGUSR1", v1.Signal.SIGUSR1),
        ("SIGRTMIN", v1.Signal.SIGRTMIN),
        ("SIGRTMIN+3", v1.Signal.SIGRTMINPLUS3),
        ("SIGRTMAX-14", v1.Signal.SIGRTMAXMINUS14),
    ],
)
def test_the_stop_signal_is_that_of_the_spec(name: str | None, signal: v1.Signal) -> None:
    config = build(make_container(lifecycle=Lifecycle(stop_signal=name)))
    assert config.stop_signal is signal
    assert build(make_container()).stop_signal is v1.Signal.RUNTIME_DEFAULT


def test_a_signal_that_nobody_knows_is_a_configuration_error() -> None:
    with pytest.raises(ContainerStartError, match="SIGNONE is no signal") as caught:
        build(make_container(lifecycle=Lifecycle(stop_signal="SIGNONE")))
    assert caught.value.reason is Waiting.CONFIG
