"""From the CRI's configuration to what the launcher is told, and what cannot be honoured.

Nothing is silently ignored: what would change what a container is allowed to do or see is
refused, and what only limits it is warned about. Pure.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from nodeagent.embedded.process.capabilities import kept_numbers
from nodeagent.proto.runtime import v1
from nodeagent.rpc import FailedPrecondition, InvalidArgument, Unimplemented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodeagent.embedded.process.isolation import Isolation
    from nodeagent.embedded.process.launcher.spec import (
        ContainerSpec,
        IdentitySpec,
        IsolationSpec,
        MountSpec,
        ProcessSpec,
    )
    from nodeagent.embedded.records import ContainerRecord, SandboxRecord

_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")  # noqa: S104 - nothing is bound here
_LOCALHOST: Final = v1.SecurityProfileProfileType.Localhost


# -- what is refused


def check_sandbox(config: v1.PodSandboxConfig) -> None:
    """Refuse what a sandbox here cannot be.

    Raises:
        Unimplemented: it names what.
        FailedPrecondition: a host port leads elsewhere than to the same port.
    """
    linux = config.linux or v1.LinuxPodSandboxConfig()
    context = linux.security_context or v1.LinuxSandboxSecurityContext()
    if linux.sysctls:
        _refuse(f"sysctls ({', '.join(sorted(linux.sysctls))}): pods share the host's kernel state")
    _check_namespaces(context.namespace_options)
    options = context.namespace_options
    if options is None or options.network is not v1.NamespaceMode.NODE:
        for port in config.port_mappings:
            _check_port(port, config.metadata or v1.PodSandboxMetadata())


def _check_port(port: v1.PortMapping, pod: v1.PodSandboxMetadata) -> None:
    """Refuse a host port that only a network of the pod's own could have."""
    if not port.host_port:
        return
    if port.host_port != port.container_port:
        trouble = f"cannot lead to containerPort {port.container_port}"
        remedy = "use hostPort equal to containerPort"
    elif port.host_ip not in _ALL_ADDRESSES:
        trouble = f"cannot be limited to hostIP {port.host_ip}"
        remedy = "leave hostIP out, and have the program itself listen on that address only"
    else:
        return
    msg = (
        f"pod {pod.namespace}/{pod.name}: hostPort {port.host_port} {trouble}: pods of the embedded"
        f" runtime share the host's network; {remedy}"
    )
    raise FailedPrecondition(msg)


def check_container(config: v1.ContainerConfig) -> None:
    """Refuse what a container here cannot be.

    Raises:
        Unimplemented: it names what.
        InvalidArgument: the configuration makes no sense.
    """
    if not config.command and not config.args:
        msg = (
            "no command: images of the embedded runtime have no entrypoint, set `command` in the"
            " pod's container (it is run from this machine's file system)"
        )
        raise InvalidArgument(msg)
    if not all([*config.command, *config.args][:1]):
        raise InvalidArgument("the command is empty")
    _check_log_path(config.log_path)
    if config.CDI_devices:
        _refuse("CDI devices")
    for mount in config.mounts:
        _check_mount(mount)
    context = _context(config)
    _check_namespaces(context.namespace_options)
    for what, profile in (("seccomp", context.seccomp), ("AppArmor", context.apparmor)):
        if profile is not None and profile.profile_type is _LOCALHOST:
            _refuse(f"{what} profiles of your own")


def _check_log_path(path: str) -> None:
    parts = path.split("/")
    if path and (not all(parts) or {".", ".."} & set(parts)):
        msg = f"log path {path!r} must be relative and stay in the sandbox's log directory"
        raise InvalidArgument(msg)


def _check_mount(mount: v1.Mount) -> None:
    if mount.image is not None and mount.image.image:
        _refuse("image volumes: images have no content")
    if not mount.host_path or not mount.container_path:
        raise InvalidArgument("a mount needs a host path and a container path")
    if not mount.host_path.startswith("/") or not mount.container_path.startswith("/"):
        msg = f"mount {mount.host_path} on {mount.container_path}: paths must be absolute"
        raise InvalidArgument(msg)
    if mount.propagation is v1.MountPropagation.PROPAGATION_BIDIRECTIONAL:
        _refuse(f"bidirectional mount propagation ({mount.container_path})")
    if mount.recursive_read_only:
        _refuse(f"recursive read-only mounts ({mount.container_path})")
    if mount.uid_mappings or mount.gid_mappings:
        _refuse(f"id-mapped mounts ({mount.container_path})")


def _check_namespaces(options: v1.NamespaceOption | None) -> None:
    if options is None:
        return
    user = options.userns_options
    if user is not None and (user.uids or user.gids):
        _refuse("user namespaces (hostUsers: false)")
    if options.pid is v1.NamespaceMode.TARGET:
        _refuse("joining the process namespace of another container")


def _refuse(what: str) -> None:
    msg = f"the embedded runtime cannot do {what}"
    raise Unimplemented(msg)


# -- what the launcher is told


def container_spec(
    container: ContainerRecord,
    sandbox: SandboxRecord,
    isolation: Isolation,
    *,
    directory: str,
    sandbox_files: Sequence[MountSpec],
    hidden: Sequence[str],
) -> ContainerSpec:
    """Everything about one container.

    Args:
        container: what was asked for.
        sandbox: where it is in.
        isolation: what this machine allows.
        directory: the container's own directory.
        sandbox_files: files of the sandbox that its containers see.
        hidden: host directories whose mounts containers do not see.
    """
    config = container.config
    own: IsolationSpec | None = None
    if isolation.means != "none":
        mounted = {str(PurePosixPath(mount.container_path)) for mount in config.mounts}
        extra = [one for one in sandbox_files if one["target"] not in mounted]
        own = _isolation_spec(config, sandbox, isolation, extra, hidden)
    return {
        "dir": directory,
        "name": container.name,
        "process": process_spec(container, sandbox, scratch="" if own else f"{directory}/cwd"),
        "tty": config.tty,
        "stdin": config.stdin,
        "stdin_once": config.stdin_once,
        "log_directory": sandbox.config.log_directory,
        "log_path": config.log_path if container.log_path else "",
        "isolation": own,
    }


def process_spec(
    container: ContainerRecord,
    sandbox: SandboxRecord,
    *,
    scratch: str,
    argv: Sequence[str] | None = None,
) -> ProcessSpec:
    """The container's program, or a command in it with the same surroundings.

    Args:
        container: whose program.
        sandbox: where it is in.
        scratch: home and working directory of a container without a file system of its own.
        argv: the command, when it is not the container's program.
    """
    config = container.config
    env = {"HOSTNAME": sandbox.config.hostname} if sandbox.config.hostname else {}
    if scratch:
        env["HOME"] = scratch
    if config.tty:
        env["TERM"] = "xterm"
    for variable in config.envs:
        env[variable.key] = variable.value.decode("utf-8", "surrogateescape")
    return {
        "argv": list(argv) if argv is not None else [*config.command, *config.args],
        "env": env,
        "cwd": config.working_dir or scratch or "/",
        "identity": _identity_spec(config),
    }


def _isolation_spec(
    config: v1.ContainerConfig,
    sandbox: SandboxRecord,
    isolation: Isolation,
    extra: Sequence[MountSpec],
    hidden: Sequence[str],
) -> IsolationSpec:
    context, options = _context(config), _options(config)
    return {
        "user": isolation.means == "user",
        "upper": isolation.upper,
        "hostname": sandbox.config.hostname,
        "own_pid": options.pid is not v1.NamespaceMode.NODE,
        "own_ipc": options.ipc is not v1.NamespaceMode.NODE,
        "mounts": [*extra, *(_mount_spec(mount) for mount in config.mounts)],
        "devices": [
            {
                "source": one.host_path,
                "target": one.container_path,
                "readonly": False,
                "private": True,
            }
            for one in config.devices
        ],
        "all_devices": context.privileged,
        "masked": [] if context.privileged else context.masked_paths,
        "readonly_paths": [] if context.privileged else context.readonly_paths,
        "readonly_root": context.readonly_rootfs,
        "hide": list(hidden),
    }


def _mount_spec(mount: v1.Mount) -> MountSpec:
    return {
        "source": mount.host_path,
        "target": mount.container_path,
        "readonly": mount.readonly,
        "private": mount.propagation is v1.MountPropagation.PROPAGATION_PRIVATE,
    }


def _identity_spec(config: v1.ContainerConfig) -> IdentitySpec:
    context = _context(config)
    capability = context.capabilities or v1.Capability()
    resources = config.linux.resources if config.linux else None
    kept = kept_numbers(capability.add_capabilities, capability.drop_capabilities)
    strict = context.supplemental_groups_policy is v1.SupplementalGroupsPolicy.Strict
    return {
        "uid": context.run_as_user.value if context.run_as_user else None,
        "username": context.run_as_username,
        "gid": context.run_as_group.value if context.run_as_group else None,
        "groups": context.supplemental_groups,
        "merge_groups": not strict,
        "capabilities": None if context.privileged else kept,
        "no_new_privs": context.no_new_privs,
        "oom_score_adj": resources.oom_score_adj if resources else None,
    }


def _context(config: v1.ContainerConfig) -> v1.LinuxContainerSecurityContext:
    linux = config.linux or v1.LinuxContainerConfig()
    return linux.security_context or v1.LinuxContainerSecurityContext()


def _options(config: v1.ContainerConfig) -> v1.NamespaceOption:
    default = v1.NamespaceOption(pid=v1.NamespaceMode.CONTAINER)
    return _context(config).namespace_options or default
