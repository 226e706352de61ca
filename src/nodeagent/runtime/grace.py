"""How long a container may take to stop (docs/behaviour/runtime.md, "Grace"). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.api import Container, Pod, Probe
from nodeagent.model.actions import KillReason
from nodeagent.runtime import names

MINIMUM_GRACE: Final = 2
"""Seconds that every container gets."""


def container_grace(
    pod: Pod | None,
    container: Container | None,
    annotations: Mapping[str, str],
    reason: KillReason = KillReason.NONE,
) -> int:
    """Seconds that a container may take to stop, before any override.

    Args:
        pod: the pod's spec; None when it is gone.
        container: the container's spec; None when it is gone.
        annotations: those of the container, which stand in for a spec that is gone.
        reason: a failed probe may have a grace period of its own.
    """
    if pod is None:
        return _first(
            names.read_int(annotations, names.DELETION_GRACE),
            names.read_int(annotations, names.TERMINATION_GRACE),
        )
    own = pod.spec.termination_grace_period_seconds
    probe = _probe(container, reason)
    by_probe = None
    if own is not None and probe is not None:
        by_probe = probe.termination_grace_period_seconds
    return _first(pod.metadata.deletion_grace_period_seconds, by_probe, own)


def _first(*seconds: int | None) -> int:
    return next((s for s in seconds if s is not None), MINIMUM_GRACE)


def _probe(container: Container | None, reason: KillReason) -> Probe | None:
    if container is None:
        return None
    if reason is KillReason.STARTUP_PROBE:
        return container.startup_probe
    if reason is KillReason.LIVENESS_PROBE:
        return container.liveness_probe
    return None


def stop_timeout(grace: int) -> int:
    """The seconds that the runtime is asked to wait before it kills."""
    return max(grace, MINIMUM_GRACE)
