"""Rules for security contexts and sysctls."""

import re
from collections.abc import Iterator
from typing import Final

from nodeagent.api.base import ApiObject
from nodeagent.api.pod import PodSpec
from nodeagent.api.security import (
    AppArmorProfile,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    Sysctl,
)
from nodeagent.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
)
from nodeagent.api.validation.names import (
    MAX_SUBDOMAIN,
    check,
    check_one_of,
    check_one_of_if_set,
    check_range,
    inner_path_fault,
)
from nodeagent.api.walk import set_fields

MAX_ID: Final = 2**31 - 1
_MAX_APP_ARMOR: Final = 4095
_PROFILE_TYPES: Final = ("Unconfined", "RuntimeDefault", "Localhost")
_SYSCTL_PART: Final = r"[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = re.compile(rf"(?:{_SYSCTL_PART}[./])*{_SYSCTL_PART}")
_IPC_SYSCTLS: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def check_pod_security(
    path: str, context: PodSecurityContext, spec: PodSpec
) -> Iterator[FieldError]:
    """Judge the pod's security context together with its use of host namespaces."""
    yield from _check_ids(path, context)
    yield from _check_id(f"{path}.fsGroup", context.fs_group)
    for index, group in enumerate(context.supplemental_groups):
        yield from _check_id(f"{path}.supplementalGroups[{index}]", group)
    yield from check_one_of_if_set(
        f"{path}.fsGroupChangePolicy", context.fs_group_change_policy, ("OnRootMismatch", "Always")
    )
    yield from check_one_of_if_set(
        f"{path}.supplementalGroupsPolicy", context.supplemental_groups_policy, ("Merge", "Strict")
    )
    yield from check_one_of_if_set(
        f"{path}.seLinuxChangePolicy", context.se_linux_change_policy, ("Recursive", "MountOption")
    )
    yield from _check_seccomp(f"{path}.seccompProfile", context.seccomp_profile)
    yield from _check_app_armor(f"{path}.appArmorProfile", context.app_armor_profile)
    yield from _check_sysctls(f"{path}.sysctls", context.sysctls, spec)


def check_security(
    path: str, context: SecurityContext | None, spec: PodSpec
) -> Iterator[FieldError]:
    """Judge a container's security context, if it has one."""
    if context is None:
        return
    yield from _check_ids(path, context)
    yield from _check_seccomp(f"{path}.seccompProfile", context.seccomp_profile)
    yield from _check_app_armor(f"{path}.appArmorProfile", context.app_armor_profile)
    yield from check_one_of_if_set(f"{path}.procMount", context.proc_mount, ("Default", "Unmasked"))
    if context.proc_mount == "Unmasked" and spec.host_users is not False:
        yield invalid(f"{path}.procMount", context.proc_mount, "needs spec.hostUsers to be false")
    if context.allow_privilege_escalation is False:
        here = f"{path}.allowPrivilegeEscalation"
        added = context.capabilities.add if context.capabilities is not None else ()
        if context.privileged:
            yield invalid(here, value=False, detail="may not be false for a privileged container")
        if "CAP_SYS_ADMIN" in added:
            yield invalid(here, value=False, detail="may not be false with CAP_SYS_ADMIN added")


def _check_ids(path: str, context: PodSecurityContext | SecurityContext) -> Iterator[FieldError]:
    yield from _check_id(f"{path}.runAsUser", context.run_as_user)
    yield from _check_id(f"{path}.runAsGroup", context.run_as_group)


def _check_id(path: str, value: int | None) -> Iterator[FieldError]:
    if value is not None:
        yield from check_range(path, value, 0, MAX_ID)


def _check_seccomp(path: str, profile: SeccompProfile | None) -> Iterator[FieldError]:
    if profile is None:
        return
    yield from check_one_of(f"{path}.type", profile.type, _PROFILE_TYPES)
    here = f"{path}.localhostProfile"
    if profile.type != "Localhost":
        if profile.localhost_profile is not None:
            yield invalid(here, profile.localhost_profile, "needs the type Localhost")
    else:
        yield from check(here, profile.localhost_profile or "", inner_path_fault)


def _check_app_armor(path: str, profile: AppArmorProfile | None) -> Iterator[FieldError]:
    if profile is None:
        return
    yield from check_one_of(f"{path}.type", profile.type, _PROFILE_TYPES)
    here, name = f"{path}.localhostProfile", profile.localhost_profile
    if profile.type != "Localhost":
        if name is not None:
            yield invalid(here, name, "needs the type Localhost")
    elif not name or not name.strip():
        yield required(here, "the type Localhost needs it")
    elif name != name.strip():
        yield invalid(here, name, "must not have blanks around it")
    elif len(name) > _MAX_APP_ARMOR:
        yield too_long(here, _MAX_APP_ARMOR)


def _check_sysctls(path: str, sysctls: tuple[Sysctl, ...], spec: PodSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        here = f"{path}[{index}].name"
        yield from check(here, sysctl.name, _sysctl_fault)
        # Slashes and dots mean the same.
        name = sysctl.name.replace("/", ".")
        if name in seen:
            yield duplicate(here, sysctl.name)
        seen.add(name)
        if spec.host_network and name.startswith("net."):
            yield invalid(here, sysctl.name, "may not be set with hostNetwork")
        if spec.host_ipc and name.startswith(_IPC_SYSCTLS):
            yield invalid(here, sysctl.name, "may not be set with hostIPC")


def _sysctl_fault(name: str) -> str | None:
    if len(name) > MAX_SUBDOMAIN:
        return f"must have at most {MAX_SUBDOMAIN} characters"
    if not _SYSCTL.fullmatch(name):
        return "must be parts of lower-case letters, digits, '-' and '_', joined by '.' or '/'"
    return None


_POD_BANS_ON_WINDOWS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_BANS_ON_WINDOWS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def check_context_for_os(
    path: str, context: PodSecurityContext | SecurityContext | None, system: str
) -> Iterator[FieldError]:
    """Refuse the settings that the pod's operating system does not have."""
    if context is None:
        return
    if system == "linux":
        bans: tuple[str, ...] = ("windowsOptions",)
    elif isinstance(context, PodSecurityContext):
        bans = _POD_BANS_ON_WINDOWS
    else:
        bans = _CONTAINER_BANS_ON_WINDOWS
    yield from refuse_set(path, context, bans, f"may not be set for {system} pods")


def refuse_set(path: str, obj: ApiObject, names: tuple[str, ...], why: str) -> Iterator[FieldError]:
    """Refuse each of some fields, by JSON name, that is set."""
    for name, _ in set_fields(obj):
        if name in names:
            yield forbidden(f"{path}.{name}", why)
