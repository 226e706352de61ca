"""Figures about probes, under the kubelet's names."""

from __future__ import annotations

from collections import Counter as Tallies
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from nodeagent.model import ProbeResult
from nodeagent.plain_counter import SECONDS

RESULT_LABEL: Final = {
    ProbeResult.SUCCESS: "successful",
    ProbeResult.FAILURE: "failed",
    ProbeResult.UNKNOWN: "unknown",
}


class ProbeMetrics:
    """The metrics of this package.

    Args:
        registry: where they are registered; two agents in one process have two.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.results = Counter(
            "prober_probe_total",
            "Probes of containers that were made, by result",
            ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
            registry=registry,
        )
        self.duration = Histogram(
            "prober_probe_duration_seconds",
            "Seconds that a probe of a container took",
            ["probe_type", "container", "pod", "namespace"],
            buckets=SECONDS,
            registry=registry,
        )
        # Two pods of one name, the old one still ending, share what has no UID among its labels.
        self.sharing: Tallies[tuple[str, ...]] = Tallies()
        self.lateness = Histogram(
            "nodeagent_probe_lateness_seconds",
            "Seconds from the moment at which a probe was due to the one at which it was made",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
            registry=registry,
        )


class Tally:
    """The metrics of one probe, with its labels.

    Args:
        metrics: where they belong.
        probe_type: ``Liveness``, ``Readiness`` or ``Startup``.
        container: the container's name.
        pod: the pod's name.
        namespace: the pod's namespace.
        uid: the pod's UID.
    """

    def __init__(
        self,
        metrics: ProbeMetrics,
        *,
        probe_type: str,
        container: str,
        pod: str,
        namespace: str,
        uid: str,
    ) -> None:
        self._metrics = metrics
        self._short = (probe_type, container, pod, namespace)
        self._uid = uid
        # Made when they are first needed: most probes only ever see one result.
        self._counters: dict[ProbeResult, Counter] = {}
        self._duration: Histogram | None = None

    def count(self, result: ProbeResult, seconds: float) -> None:
        """One probe was made."""
        counter = self._counters.get(result)
        if counter is None:
            counter = self._metrics.results.labels(*self._labels(result))
            self._counters[result] = counter
        counter.inc()
        if self._duration is None:
            self._duration = self._metrics.duration.labels(*self._short)
            self._metrics.sharing[self._short] += 1
        self._duration.observe(seconds)

    def remove(self) -> None:
        """The probe is gone, and its figures with it."""
        for result in self._counters:
            self._metrics.results.remove(*self._labels(result))
        if self._duration is not None:
            sharing = self._metrics.sharing
            sharing[self._short] -= 1
            if not sharing[self._short]:
                del sharing[self._short]
                self._metrics.duration.remove(*self._short)
        self._counters.clear()
        self._duration = None

    def _labels(self, result: ProbeResult) -> tuple[str, ...]:
        probe_type, container, pod, namespace = self._short
        return (probe_type, RESULT_LABEL[result], container, pod, namespace, self._uid)
