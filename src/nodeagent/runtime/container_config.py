"""The configuration of a container (docs/behaviour/runtime.md, "Container"). Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from nodeagent.api import Container, Pod
from nodeagent.proto.runtime import v1
from nodeagent.runtime import names
from nodeagent.runtime.devices import build_devices, volume_groups
from nodeagent.runtime.environment import (
    NO_SOURCES,
    EnvironmentSources,
    build_environment,
    expand_all,
)
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.hash import container_hash
from nodeagent.runtime.linux_resources import container_resources
from nodeagent.runtime.mounts import ManagedFiles, MountInputs, build_mounts
from nodeagent.runtime.security import container_security
from nodeagent.runtime.settings import HostFacts, RuntimeSettings


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """What a container's configuration is made from, besides its spec.

    Attributes:
        attempt: its restart count.
        image_ref: the image as the runtime identifies it.
        image: what the runtime says about the image.
        mounts: what its mounts are made from.
        files: what the agent mounts itself.
        userns: the pod's user namespace; None when it has the host's users.
        target: id of the container whose processes this one sees; "" for none.
        sources: what its variables refer to.
    """

    attempt: int
    image_ref: str
    image: v1.Image | None
    mounts: MountInputs
    files: ManagedFiles
    userns: v1.UserNamespace | None = None
    target: str = ""
    sources: EnvironmentSources = NO_SOURCES


def build_container_config(
    pod: Pod,
    container: Container,
    inputs: ContainerInputs,
    settings: RuntimeSettings,
    host: HostFacts,
) -> v1.ContainerConfig:
    """The message that creates a container.

    Raises:
        ContainerStartError: with CreateContainerConfigError, when the spec cannot be met.
    """
    environment = build_environment(pod, container, inputs.sources)
    return v1.ContainerConfig(
        metadata=v1.ContainerMetadata(name=container.name, attempt=inputs.attempt),
        image=v1.ImageSpec(image=inputs.image_ref, user_specified_image=container.image),
        command=expand_all(container.command, environment),
        args=expand_all(container.args, environment),
        working_dir=container.working_dir,
        envs=[
            v1.KeyValue(key=name, value=value.encode(errors="surrogateescape"))
            for name, value in environment.items()
        ],
        mounts=build_mounts(container, inputs.mounts, inputs.files, inputs.userns, environment),
        devices=build_devices(container, inputs.mounts.volumes),
        labels=container_labels(pod, container.name),
        annotations=container_annotations(pod, container, inputs.attempt),
        log_path=f"{container.name}/{inputs.attempt}.log",
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        stop_signal=stop_signal(container),
        linux=v1.LinuxContainerConfig(
            resources=container_resources(pod, container, settings, host),
            security_context=container_security(
                pod,
                container,
                inputs.image,
                settings,
                host,
                userns=inputs.userns,
                target=inputs.target,
                groups=volume_groups(inputs.mounts.volumes.values()),
            ),
        ),
    )


def container_labels(pod: Pod, container: str) -> dict[str, str]:
    """The four labels of a container; the pod's own labels are not among them."""
    return {names.CONTAINER_NAME: container, **names.PodNames.of(pod).labels}


def container_annotations(pod: Pod, container: Container, attempt: int) -> dict[str, str]:
    """What the agent must know of a container when the spec is gone."""
    result = {
        names.HASH: container_hash(container.name, container.image),
        names.RESTART_COUNT: str(attempt),
        names.TERMINATION_MESSAGE_PATH: container.termination_message_path,
        names.TERMINATION_MESSAGE_POLICY: container.termination_message_policy,
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        result[names.DELETION_GRACE] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        result[names.TERMINATION_GRACE] = str(pod.spec.termination_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        result[names.PRE_STOP_HANDLER] = _json(container.lifecycle.pre_stop)
    if container.ports:
        result[names.PORTS] = _json(container.ports)
    return result


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def stop_signal(container: Container) -> v1.Signal:
    """The signal that stops the container; without one the image decides."""
    name = container.lifecycle.stop_signal if container.lifecycle is not None else None
    if not name:
        return v1.Signal.RUNTIME_DEFAULT
    try:
        return v1.Signal[name.replace("+", "PLUS").replace("-", "MINUS")]
    except KeyError:
        message = f"container {container.name}: {name} is no signal that a runtime knows"
        raise ContainerStartError(Waiting.CONFIG, message) from None
