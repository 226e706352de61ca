"""Seccomp and AppArmor profiles of containers (docs/behaviour/runtime.md, "Security"). Pure."""

from __future__ import annotations

from typing import Final

from nodeagent.api import AppArmorProfile, Container, Pod, SeccompProfile
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.settings import HostFacts, RuntimeSettings

APP_ARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
_LOCAL: Final = "localhost/"
_Kind = v1.SecurityProfileProfileType
_NAMES: Final = {
    "RuntimeDefault": (_Kind.RuntimeDefault, "runtime/default"),
    "Unconfined": (_Kind.Unconfined, "unconfined"),
}


def seccomp(
    pod: Pod, container: Container, settings: RuntimeSettings
) -> tuple[v1.SecurityProfile, str]:
    """The container's seccomp profile, else the pod's, else the node's default.

    Returns:
        The profile, and its name as older runtimes take it.
    """
    own, shared = container.security_context, pod.spec.security_context
    profile = (own and own.seccomp_profile) or (shared and shared.seccomp_profile)
    if not profile:
        profile = SeccompProfile(
            type="RuntimeDefault" if settings.seccomp_default else "Unconfined"
        )
    if profile.type == "Localhost":
        path = settings.root_dir / "seccomp" / (profile.localhost_profile or "")
        local = v1.SecurityProfile(profile_type=_Kind.Localhost, localhost_ref=str(path))
        return local, f"{_LOCAL}{path}"
    kind, name = _NAMES.get(profile.type, _NAMES["Unconfined"])
    return v1.SecurityProfile(profile_type=kind), name


def app_armor(
    pod: Pod, container: Container, host: HostFacts
) -> tuple[v1.SecurityProfile | None, str]:
    """The container's AppArmor profile, else that of its annotation, else the pod's.

    Returns:
        The profile, and its name as older runtimes take it; None and "" leave it to the
        runtime.

    Raises:
        ContainerStartError: there is one, and the host cannot enforce it.
    """
    own, shared = container.security_context, pod.spec.security_context
    annotated = pod.metadata.annotations.get(APP_ARMOR_ANNOTATION + container.name, "")
    profile = (
        (own and own.app_armor_profile)
        or _from_annotation(annotated)
        or (shared and shared.app_armor_profile)
    )
    if not profile:
        return None, ""
    if profile.type != "Unconfined" and not host.app_armor:
        message = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
        raise ContainerStartError(Waiting.CONFIG, message)
    if profile.type == "Localhost":
        name = profile.localhost_profile or ""
        local = v1.SecurityProfile(profile_type=_Kind.Localhost, localhost_ref=name)
        return local, f"{_LOCAL}{name}"
    kind, name = _NAMES.get(profile.type, _NAMES["Unconfined"])
    return v1.SecurityProfile(profile_type=kind), name


def _from_annotation(value: str) -> AppArmorProfile | None:
    if value.startswith(_LOCAL):
        return AppArmorProfile(type="Localhost", localhost_profile=value.removeprefix(_LOCAL))
    kind = next((kind for kind, (_, name) in _NAMES.items() if name == value), None)
    return AppArmorProfile(type=kind) if kind is not None else None
