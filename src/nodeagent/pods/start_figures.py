"""How long pods take to start, for the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TypeAlias

import anyio

from nodeagent.api import Pod, PodStatus
from nodeagent.clock import Clock
from nodeagent.model import PodUID
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.phase import PENDING, RUNNING
from nodeagent.pods.status import is_static

Span: TypeAlias = tuple[datetime, datetime]
"""From when until when, by the wall clock."""

PullSpan: TypeAlias = Callable[[PodUID], Span | None]
"""From a pod's first pull to the end of its last; None for one that has pulled nothing."""


class StartFigures:
    """Times starts of pods from the status that is stored first to the one that says Running.

    Args:
        metrics: where they are counted.
        clock: wall time: pods are made on other machines.
        pulled: when a pod pulled its images.
    """

    def __init__(self, metrics: PodMetrics, clock: Clock, pulled: PullSpan) -> None:
        self._metrics = metrics
        self._clock = clock
        self._pulled = pulled
        self._begun: dict[PodUID, float] = {}

    def new_phase(self, pod: Pod, status: PodStatus) -> None:
        """A pod has a status of another phase than before."""
        uid = PodUID(pod.metadata.uid)
        if status.phase == PENDING:
            self._begun.setdefault(uid, anyio.current_time())
            return
        begun = self._begun.pop(uid, None)
        if begun is None or status.phase != RUNNING:
            return
        self._metrics.pod_start_duration.observe(anyio.current_time() - begun)
        created = pod.metadata.creation_timestamp
        if created is None or is_static(pod):
            return
        # Two machines' clocks: a pod may seem to run before it was made.
        whole = (created, max(self._clock.now(), created))
        pulled = self._pulled(uid)
        rest = [*_init_runs(pod, status), *([] if pulled is None else [pulled])]
        self._metrics.pod_start_total_duration.observe(_seconds(whole))
        self._metrics.pod_start_sli_duration.observe(_seconds(whole) - covered(whole, rest))

    def forget_pod(self, uid: PodUID) -> None:
        """Drop what is known of a pod that is gone."""
        self._begun.pop(uid, None)


def covered(whole: Span, parts: Iterable[Span]) -> float:
    """The seconds of a span that at least one of several others covers.

    Args:
        whole: the span.
        parts: the others, in any order; they may overlap each other and reach beyond it.
    """
    seconds, done = 0.0, whole[0]
    for begin, end in sorted(parts):
        until = min(end, whole[1])
        since = max(begin, done)
        if until > since:
            seconds += (until - since).total_seconds()
            done = until
    return seconds


def _seconds(span: Span) -> float:
    return (span[1] - span[0]).total_seconds()


def _init_runs(pod: Pod, status: PodStatus) -> Iterator[Span]:
    """When init containers ran that the others had to wait for; sidecars run on."""
    plain = {c.name for c in pod.spec.init_containers if c.restart_policy != "Always"}
    for one in status.init_container_statuses:
        end = one.state.terminated
        if one.name not in plain or end is None:
            continue
        if end.started_at is not None and end.finished_at is not None:
            yield end.started_at, end.finished_at
