"""Builders of the CRI's configurations, for tests that talk to a runtime themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = "example.com/app:1"
"""The image that containers are made from unless told otherwise."""


def sandbox_config(
    name: str = "pod",
    *,
    uid: str = "",
    namespace: str = "default",
    attempt: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    logs: Path | None = None,
    host_network: bool = False,
    hostname: str = "",
) -> v1.PodSandboxConfig:
    """A sandbox as an agent asks for it; ``uid`` is made from the name when empty."""
    uid = uid or f"uid-{name}"
    own = {"io.kubernetes.pod.name": name, "io.kubernetes.pod.uid": uid}
    mode = v1.NamespaceMode.NODE if host_network else v1.NamespaceMode.POD
    options = v1.NamespaceOption(network=mode, pid=v1.NamespaceMode.CONTAINER)
    return v1.PodSandboxConfig(
        metadata=v1.PodSandboxMetadata(name=name, uid=uid, namespace=namespace, attempt=attempt),
        hostname=hostname,
        log_directory=str(logs) if logs else "",
        labels={**own, "io.kubernetes.pod.namespace": namespace, **(labels or {})},
        annotations=dict(annotations or {}),
        linux=v1.LinuxPodSandboxConfig(
            security_context=v1.LinuxSandboxSecurityContext(namespace_options=options)
        ),
    )


def container_config(
    name: str = "main",
    command: Sequence[str] = ("sleep", "infinity"),
    *,
    args: Sequence[str] = (),
    attempt: int = 0,
    image: str = IMAGE,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[v1.Mount] = (),
    labels: Mapping[str, str] | None = None,
    working_dir: str = "",
    security: v1.LinuxContainerSecurityContext | None = None,
    tty: bool = False,
    stdin: bool = False,
    stdin_once: bool = False,
) -> v1.ContainerConfig:
    """A container as an agent asks for it; its log is ``NAME/ATTEMPT.log``."""
    context = security or v1.LinuxContainerSecurityContext()
    if context.namespace_options is None:
        context.namespace_options = v1.NamespaceOption(pid=v1.NamespaceMode.CONTAINER)
    return v1.ContainerConfig(
        metadata=v1.ContainerMetadata(name=name, attempt=attempt),
        image=v1.ImageSpec(image=image),
        command=list(command),
        args=list(args),
        working_dir=working_dir,
        envs=[v1.KeyValue(key=key, value=value.encode()) for key, value in (env or {}).items()],
        mounts=list(mounts),
        labels={"io.kubernetes.container.name": name, **(labels or {})},
        log_path=f"{name}/{attempt}.log",
        linux=v1.LinuxContainerConfig(security_context=context),
        tty=tty,
        stdin=stdin,
        stdin_once=stdin_once,
    )
