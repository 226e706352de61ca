"""Which statuses can wait a moment for what comes next. Pure (docs/behaviour/status.md, SW14)."""

from __future__ import annotations

from typing import Final

from nodeagent.api import ContainerStatus, Pod, PodStatus
from nodeagent.pods.phase import PENDING

ON_ITS_WAY: Final = 1.0
"""Seconds that the status of a pod may wait that only says that the pod is on its way."""
_EXPECTED: Final = frozenset({"ContainerCreating", "PodInitializing"})


def may_wait(pod: Pod, status: PodStatus) -> bool:
    """Whether a status only says that the pod is on its way, and nothing went wrong so far.

    Nobody acts on that, and mostly a better status follows soon: it saves a write for each pod
    just when many are started.
    """
    return (
        status.phase == PENDING
        and pod.metadata.deletion_timestamp is None
        and not (status.reason or status.message)
        and not status.ephemeral_container_statuses
        and all(map(_is_expected, status.init_container_statuses))
        and all(map(_is_expected, status.container_statuses))
    )


def _is_expected(container: ContainerStatus) -> bool:
    waiting = container.state.waiting
    return (
        waiting is not None
        and waiting.reason in _EXPECTED
        and not waiting.message
        and not container.restart_count
        and container.last_state.terminated is None
    )
