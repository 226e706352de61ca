"""Security settings of sandboxes and containers (docs/behaviour/runtime.md, "Security")."""

from __future__ import annotations

from typing import Final

from nodeagent.api import Container, Pod
from nodeagent.proto.runtime import v1
from nodeagent.runtime.settings import HostFacts

MASKED_PATHS: Final = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READONLY_PATHS: Final = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)


def namespace_options(pod: Pod, target: str = "") -> v1.NamespaceOption:
    """Which namespaces the pod has for itself and which it shares with the host.

    Args:
        pod: the pod.
        target: id of a container whose process namespace is entered, when each container of
            the pod has its own.
    """
    spec = pod.spec
    if spec.host_pid:
        pid = v1.NamespaceMode.NODE
    elif spec.share_process_namespace:
        pid = v1.NamespaceMode.POD
    elif target:
        pid = v1.NamespaceMode.TARGET
    else:
        pid = v1.NamespaceMode.CONTAINER
    return v1.NamespaceOption(
        network=v1.NamespaceMode.NODE if spec.host_network else v1.NamespaceMode.POD,
        ipc=v1.NamespaceMode.NODE if spec.host_ipc else v1.NamespaceMode.POD,
        pid=pid,
        target_id=target if pid is v1.NamespaceMode.TARGET else "",
    )


def is_privileged(container: Container) -> bool:
    """Whether a container asks for all privileges."""
    context = container.security_context
    return context is not None and bool(context.privileged)


def sandbox_security(pod: Pod) -> v1.LinuxSandboxSecurityContext:
    """The sandbox's security settings; its own process is always confined by seccomp."""
    spec = pod.spec
    everyone = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    return v1.LinuxSandboxSecurityContext(
        namespace_options=namespace_options(pod),
        privileged=any(is_privileged(c) for c in everyone),
        seccomp=v1.SecurityProfile(profile_type=v1.SecurityProfileProfileType.RuntimeDefault),
    )


def container_security(
    pod: Pod, container: Container, image: v1.Image | None, host: HostFacts, *, target: str = ""
) -> v1.LinuxContainerSecurityContext:
    """The container's security settings: the image's user, and the usual protections.

    Args:
        pod: gives the namespaces.
        container: whether it is privileged.
        image: what the runtime says about the image; gives the user.
        host: gives the paths that are masked because they exist.
        target: id of the container whose processes this one sees; "" for none.
    """
    context = v1.LinuxContainerSecurityContext(
        namespace_options=namespace_options(pod, target),
        privileged=is_privileged(container),
        seccomp=v1.SecurityProfile(profile_type=v1.SecurityProfileProfileType.Unconfined),
        seccomp_profile_path="unconfined",
        masked_paths=[*MASKED_PATHS, *host.thermal_throttle],
        readonly_paths=list(READONLY_PATHS),
    )
    if image is not None and image.uid is not None:
        context.run_as_user = v1.Int64Value(value=image.uid.value)
    elif image is not None and image.username:
        context.run_as_username = image.username
    return context
