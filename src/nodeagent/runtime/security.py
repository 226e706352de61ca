"""Security settings of sandboxes and containers (docs/behaviour/runtime.md, "Security")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nodeagent.api import Container, Pod, PodSecurityContext, SecurityContext, SELinuxOptions
from nodeagent.proto.runtime import v1
from nodeagent.runtime.confinement import app_armor, seccomp
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.settings import HostFacts, RuntimeSettings

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
_UNMASKED: Final = "Unmasked"
_POLICIES: Final = {
    "Merge": v1.SupplementalGroupsPolicy.Merge,
    "Strict": v1.SupplementalGroupsPolicy.Strict,
}
_HOST_USERS: Final = v1.UserNamespace(mode=v1.NamespaceMode.NODE)
_NO_POD_CONTEXT: Final = PodSecurityContext()
_NO_CONTEXT: Final = SecurityContext()


def pod_context(pod: Pod) -> PodSecurityContext:
    """The pod's security context; an empty one when it has none."""
    return pod.spec.security_context or _NO_POD_CONTEXT


def own_context(container: Container) -> SecurityContext:
    """The container's security context; an empty one when it has none."""
    return container.security_context or _NO_CONTEXT


def namespace_options(
    pod: Pod, userns: v1.UserNamespace | None = None, target: str = ""
) -> v1.NamespaceOption:
    """Which namespaces the pod has for itself and which it shares with the host.

    Args:
        pod: the pod.
        userns: its user namespace; None when it has the host's.
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
        userns_options=_HOST_USERS if userns is None else userns,
    )


def is_privileged(container: Container) -> bool:
    """Whether a container asks for all privileges."""
    return bool(own_context(container).privileged)


def supplemental_groups(pod: Pod, further: Iterable[int] = ()) -> list[int]:
    """Groups that all processes of the pod are in: that of its volumes, then the listed ones.

    Args:
        pod: lists them.
        further: those that its volumes ask for.
    """
    context = pod_context(pod)
    groups = list(context.supplemental_groups)
    groups += [group for group in further if group not in groups]
    return groups if context.fs_group is None else [context.fs_group, *groups]


def sandbox_security(
    pod: Pod, userns: v1.UserNamespace | None = None, groups: Iterable[int] = ()
) -> v1.LinuxSandboxSecurityContext:
    """The sandbox's security settings; its own process is always confined by seccomp.

    Args:
        pod: whose sandbox.
        userns: its user namespace; None when it has the host's users.
        groups: those that its volumes ask for.
    """
    spec, context = pod.spec, pod_context(pod)
    everyone = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    return v1.LinuxSandboxSecurityContext(
        namespace_options=namespace_options(pod, userns),
        privileged=any(is_privileged(c) for c in everyone),
        seccomp=v1.SecurityProfile(profile_type=v1.SecurityProfileProfileType.RuntimeDefault),
        run_as_user=_number(context.run_as_user),
        # Runtimes refuse a group without a user, and whose the pause process is does not matter.
        run_as_group=None if context.run_as_user is None else _number(context.run_as_group),
        selinux_options=_selinux(context.se_linux_options),
        supplemental_groups=supplemental_groups(pod, groups),
        supplemental_groups_policy=_groups_policy(context),
    )


def container_security(
    pod: Pod,
    container: Container,
    image: v1.Image | None,
    settings: RuntimeSettings,
    host: HostFacts,
    *,
    userns: v1.UserNamespace | None = None,
    target: str = "",
    groups: Iterable[int] = (),
) -> v1.LinuxContainerSecurityContext:
    """The container's security settings; what it does not say itself, its pod says for it.

    Args:
        pod: gives namespaces, groups, and defaults.
        container: its own settings win.
        image: what the runtime says about the image; gives the user.
        settings: where seccomp profiles lie, and what applies without one.
        host: gives the paths that are masked because they exist, and whether there is AppArmor.
        userns: the pod's user namespace; None when it has the host's.
        target: id of the container whose processes this one sees; "" for none.
        groups: further ones, for the pod's volumes.

    Raises:
        ContainerStartError: the container must not run as root, and may do so; or it wants an
            AppArmor profile that the host cannot enforce.
    """
    shared, own = pod_context(pod), own_context(container)
    check_non_root(pod, container, image)
    confined, confined_path = seccomp(pod, container, settings)
    profile, profile_name = app_armor(pod, container, host)
    unmasked = own.proc_mount == _UNMASKED
    context = v1.LinuxContainerSecurityContext(
        namespace_options=namespace_options(pod, userns, target),
        privileged=is_privileged(container),
        capabilities=_capabilities(own),
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        run_as_group=_number(_first(own.run_as_group, shared.run_as_group)),
        selinux_options=_selinux(own.se_linux_options or shared.se_linux_options),
        supplemental_groups=supplemental_groups(pod, groups),
        supplemental_groups_policy=_groups_policy(shared),
        seccomp=confined,
        seccomp_profile_path=confined_path,
        apparmor=profile,
        apparmor_profile=profile_name,
        masked_paths=[] if unmasked else [*MASKED_PATHS, *host.thermal_throttle],
        readonly_paths=[] if unmasked else list(READONLY_PATHS),
    )
    _set_user(context, _first(own.run_as_user, shared.run_as_user), image)
    return context


def _set_user(
    context: v1.LinuxContainerSecurityContext, wanted: int | None, image: v1.Image | None
) -> None:
    uid, name = image_user(image)
    if wanted is not None:
        context.run_as_user = v1.Int64Value(value=wanted)
    elif uid is not None:
        context.run_as_user = v1.Int64Value(value=uid)
    elif name or context.run_as_group is None:
        # Where nobody said anything the runtime takes its own default, which is root.
        context.run_as_username = name
    else:
        # Runtimes refuse a group without a user.
        context.run_as_user = v1.Int64Value(value=0)


def image_user(image: v1.Image | None) -> tuple[int | None, str]:
    """The image's user: a number, or else a name; None and "" when it says nothing."""
    if image is None:
        return None, ""
    return (image.uid.value, "") if image.uid is not None else (None, image.username)


def check_non_root(pod: Pod, container: Container, image: v1.Image | None) -> None:
    """Refuse a container that must not run as root, and would or might.

    Raises:
        ContainerStartError: with CreateContainerConfigError.
    """
    shared, own = pod_context(pod), own_context(container)
    if not _first(own.run_as_non_root, shared.run_as_non_root):
        return
    user = _first(own.run_as_user, shared.run_as_user)
    uid, name = image_user(image)
    if user is not None:
        trouble = "" if user else "container's runAsUser breaks non-root policy"
    elif name:
        trouble = (
            f"container has runAsNonRoot and image has non-numeric user ({name}), "
            "cannot verify user is non-root"
        )
    else:
        trouble = "" if uid else "container has runAsNonRoot and image will run as root"
    if trouble:
        where = f'(pod: "{PodNames.of(pod)}", container: {container.name})'
        raise ContainerStartError(Waiting.CONFIG, f"{trouble} {where}")


def _first(own: int | None, shared: int | None) -> int | None:
    return shared if own is None else own


def _number(value: int | None) -> v1.Int64Value | None:
    return None if value is None else v1.Int64Value(value=value)


def _capabilities(context: SecurityContext) -> v1.Capability | None:
    asked = context.capabilities
    if asked is None:
        return None
    return v1.Capability(add_capabilities=list(asked.add), drop_capabilities=list(asked.drop))


def _selinux(options: SELinuxOptions | None) -> v1.SeLinuxOption | None:
    if options is None:
        return None
    return v1.SeLinuxOption(
        user=options.user, role=options.role, type=options.type, level=options.level
    )


def _groups_policy(context: PodSecurityContext) -> v1.SupplementalGroupsPolicy:
    policy = context.supplemental_groups_policy or "Merge"
    return _POLICIES.get(policy, v1.SupplementalGroupsPolicy.Merge)
