"""Why a pod may not run on this node, and what is counted of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from nodeagent.api import ContainerState, ContainerStateWaiting, ContainerStatus, PodStatus
from nodeagent.model import RejectedError
from nodeagent.pods.phase import PENDING

UNEXPECTED: Final = "UnexpectedAdmissionError"
OUT_OF: Final = "OutOf"
OUT_OF_EXTENDED: Final = "OutOfExtendedResources"
OTHER: Final = "Other"
UNSUPPORTED: Final = "UnsupportedField"

COUNTED: Final = frozenset(
    {
        "AppArmor",
        "Evicted",
        "InvalidNodeInfo",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "VolumeAttachmentLimitExceeded",
    }
)
"""Reasons that are counted under their own name; there must not be too many different ones."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod may not run on this node; ``reason`` is a CamelCase word."""

    reason: str
    message: str


def predicate_failed(name: str, text: str) -> Rejection:
    """A rejection by one of the rules that the scheduler has too."""
    return Rejection(name, f"Predicate {name} failed: {text}")


def counted_as(reason: str) -> str:
    """The name under which a rejection is counted."""
    if reason in COUNTED:
        return reason
    return OUT_OF_EXTENDED if reason.startswith(OUT_OF) else OTHER


def rejected(status: PodStatus, error: RejectedError) -> PodStatus:
    """The status of a pod that turned out to be one that can never run here."""
    text = f"Pod was rejected: {error}"
    return replace(status, phase="Failed", reason=error.reason, message=text)


def with_refusal(status: PodStatus, fields: Sequence[str]) -> PodStatus:
    """The status of a pod that waits, since it asks for what we cannot do; what runs goes on.

    Args:
        status: as it is otherwise.
        fields: those of the pod that we cannot honour.
    """
    message = f"not supported by this version of nodeagent: {', '.join(fields)}"
    waiting = ContainerState(waiting=ContainerStateWaiting(reason=UNSUPPORTED, message=message))
    return replace(
        status,
        phase=status.phase or PENDING,
        reason=UNSUPPORTED,
        message=message,
        container_statuses=tuple(_refused(s, waiting) for s in status.container_statuses),
    )


def without_refusal(status: PodStatus) -> PodStatus:
    """The same status, not saying any more that we cannot do what the pod asks for."""
    if status.reason != UNSUPPORTED:
        return status
    return replace(status, reason="", message="")


def _refused(status: ContainerStatus, waiting: ContainerState) -> ContainerStatus:
    return replace(status, state=waiting) if status.state.waiting is not None else status
