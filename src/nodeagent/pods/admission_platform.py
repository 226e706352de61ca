"""Whether the machine is of the kind that a pod needs. Pure.

Rows and their tests: docs/behaviour/admission.md, "Platform".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.api import AppArmorProfile, Pod
from nodeagent.api.node import Node
from nodeagent.model.restart import may_restart_all
from nodeagent.pods.rejection import Rejection

LINUX: Final = "linux"
_OS_LABEL: Final = "kubernetes.io/os"
_STRICT: Final = "Strict"
_UNCONFINED: Final = "Unconfined"
_APP_ARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS: Final = "UserNamespacesHostNetworkSupport"

FEATURES: Final = frozenset({_RESTART_ALL})
"""Features that a pod may ask for and that this agent has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What the machine and its runtime can do.

    Attributes:
        app_armor: whether AppArmor is enabled.
        strict_groups: whether the runtime can give exactly the named supplemental groups; the
            Node object may say so as well.
        features: features that pods may ask for.
    """

    app_armor: bool = False
    strict_groups: bool = False
    features: frozenset[str] = FEATURES


def wrong_system(pod: Pod) -> Rejection | None:
    """Reject a pod for another operating system, by its label or its spec."""
    if pod.metadata.labels.get(_OS_LABEL, LINUX) != LINUX:
        return Rejection(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name != LINUX:
        return Rejection(
            "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
        )
    return None


def wrong_groups(pod: Pod, node: Node, support: Support) -> Rejection | None:
    """Reject a pod whose groups the runtime cannot set as strictly as it asks."""
    context = pod.spec.security_context
    if context is None or context.supplemental_groups_policy != _STRICT:
        return None
    told = node.status.features
    if support.strict_groups or (told is not None and told.supplemental_groups_policy):
        return None
    return Rejection(
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    )


def no_app_armor(pod: Pod, support: Support) -> Rejection | None:
    """Reject a pod that has not begun and asks for a profile that cannot be enforced."""
    if support.app_armor or pod.status.phase not in ("", "Pending"):
        return None
    if not any(profile.type != _UNCONFINED for profile in _profiles(pod)):
        return None
    return Rejection("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")


def _profiles(pod: Pod) -> Iterator[AppArmorProfile]:
    shared = pod.spec.security_context
    if shared is not None and shared.app_armor_profile is not None:
        yield shared.app_armor_profile
    for key, value in pod.metadata.annotations.items():
        if key.startswith(_APP_ARMOR_ANNOTATION):
            yield AppArmorProfile(type=_UNCONFINED if value == "unconfined" else "Localhost")
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        own = container.security_context
        if own is not None and own.app_armor_profile is not None:
            yield own.app_armor_profile


def missing_features(pod: Pod, support: Support) -> Rejection | None:
    """Reject a pod that asks for something that not every node has, and this one has not."""
    asked = set()
    if may_restart_all(pod):
        asked.add(_RESTART_ALL)
    if pod.spec.host_network and pod.spec.host_users is False:
        asked.add(HOST_NETWORK_USERS)
    if missing := sorted(asked - support.features):
        text = f"Pod requires node features that are not available: {', '.join(missing)}"
        return Rejection("PodFeatureUnsupported", text)
    return None
