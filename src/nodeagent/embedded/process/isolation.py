"""What this machine lets containers have of their own, and what that means for each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

from nodeagent.proto.runtime import v1
from nodeagent.rpc import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Mapping

Means = Literal["root", "user", "none"]
Upper = Literal["dir", "tmpfs"]
ETC_HOSTS: Final = "/etc/hosts"
TERMINATION_PATH: Final = "io.kubernetes.container.terminationMessagePath"
"""Annotation of a container that says where its termination log is mounted."""
SYSCTLS: Final = {
    "user.max_user_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}
"""Settings that can forbid user namespaces, with the value that does."""
_ALLOWED: Final = {
    "user.max_user_namespaces": "10000",
    "kernel.unprivileged_userns_clone": "1",
    "kernel.apparmor_restrict_unprivileged_userns": "0",
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """What this machine lets a container have of its own.

    Attributes:
        means: by what it has its own file system and namespaces, if it has.
        upper: where changes to its root file system go.
        reason: why it has nothing more.
        remedy: what to do for that.
    """

    means: Means
    upper: Upper = "dir"
    reason: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        name = "user namespaces" if self.means == "user" else self.means
        return f"{name}: {self.reason}" if self.reason else name


def remedy(sysctls: Mapping[str, str], *, is_root: bool) -> str:
    """What to do where containers cannot be isolated.

    Args:
        sysctls: values of those of :data:`SYSCTLS` that this kernel has.
        is_root: whether the server runs as root, which then lacks privileges.
    """
    forbidding = [name for name, value in SYSCTLS.items() if sysctls.get(name) == value]
    if forbidding:
        settings = " ".join(f"{name}={_ALLOWED[name]}" for name in forbidding)
        how = f"enable unprivileged user namespaces: sysctl -w {settings}"
    else:
        how = (
            "enable unprivileged user namespaces (no sysctl forbids them here: an old kernel does,"
            " or the seccomp profile of a container around this)"
        )
    return f"{'run with CAP_SYS_ADMIN' if is_root else 'run as root'}, or {how}"


def refuse_impossible(config: v1.ContainerConfig, isolation: Isolation) -> None:
    """Refuse a container that would not find what it asks for.

    Raises:
        FailedPrecondition: it names what, why, and what to do.
    """
    if isolation.means != "none":
        return
    for mount in config.mounts:
        if not (_coincide(mount) or is_agents_own(mount, config)):
            _refuse(f"mount {mount.host_path} on {mount.container_path}", isolation)
    for device in config.devices:
        if device.host_path != device.container_path:
            _refuse(f"have {device.host_path} as {device.container_path}", isolation)


def _refuse(what: str, isolation: Isolation) -> None:
    msg = f"cannot {what}: containers are plain processes here ({isolation.reason})"
    raise FailedPrecondition(f"{msg}; {isolation.remedy}" if isolation.remedy else msg)


def _coincide(mount: v1.Mount) -> bool:
    return PurePosixPath(mount.host_path) == PurePosixPath(mount.container_path)


def is_agents_own(mount: v1.Mount, config: v1.ContainerConfig) -> bool:
    """Whether the agent mounts this of its own accord, and the container can do without."""
    host = PurePosixPath(mount.host_path)
    if mount.container_path == ETC_HOSTS:
        return host.name == "etc-hosts"
    name = config.metadata.name if config.metadata else ""
    is_log = mount.container_path == config.annotations.get(TERMINATION_PATH)
    return is_log and host.parts[-3:-1] == ("containers", name)


def container_warnings(config: v1.ContainerConfig, isolation: Isolation) -> list[str]:
    """What of the configuration has no effect here, for people."""
    found = []
    linux = config.linux or v1.LinuxContainerConfig()
    context = linux.security_context or v1.LinuxContainerSecurityContext()
    limits = linux.resources
    if limits is not None and (limits.memory_limit_in_bytes or limits.cpu_quota > 0):
        found.append("cpu and memory limits are recorded, not enforced")
    default = v1.SecurityProfileProfileType.RuntimeDefault
    if context.seccomp is not None and context.seccomp.profile_type is default:
        found.append("no seccomp filter is applied")
    asked = context.namespace_options
    if asked is not None and asked.pid is v1.NamespaceMode.POD:
        found.append("containers of one pod do not share a process namespace")
    if isolation.means != "none":
        return found
    missing = [mount.container_path for mount in config.mounts if is_agents_own(mount, config)]
    if missing:
        found.append(f"the host's own {', '.join(missing)} ({isolation.reason})")
    writable = [one.container_path for one in config.mounts if _coincide(one) and one.readonly]
    if writable:
        found.append(f"{', '.join(writable)} can be written to ({isolation.reason})")
    if context.readonly_rootfs:
        found.append(f"the root file system is the host's, writable ({isolation.reason})")
    return found
