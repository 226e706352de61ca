"""Figures about pods and their workers, under the kubelet's names."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from nodeagent.api import PodStatus
from nodeagent.plain_counter import SECONDS
from nodeagent.pods.worker_state import WorkerPhase

_LIFECYCLES: Final = (WorkerPhase.SYNC, WorkerPhase.TERMINATING, WorkerPhase.TERMINATED)
_CONFIGS: Final = {
    "desired": ("", "true"),
    "orphan": ("", "true"),
    "runtime_only": ("unknown",),
}


def static_label(static: bool | None) -> str:
    """The kubelet's label value for a static pod, another pod, and an unknown one."""
    if static is None:
        return "unknown"
    return "true" if static else ""


_STATUS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60)
_START_BUCKETS: Final = (
    0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200,
    1800, 2700, 3600,
)  # fmt: skip


def _nothing_to_count() -> None:
    """There is no housekeeping."""


class PodMetrics:
    """The metrics of this package.

    Args:
        registry: where they are registered; two agents in one process have two.

    Attributes:
        refresh: is called when somebody reads the metrics, to set what is only counted then.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refresh: Callable[[], None] = _nothing_to_count
        # The registry asks its collectors in the order of their registration.
        registry.register(_Refresh(self))
        self.worker_duration = Histogram(
            "kubelet_pod_worker_duration_seconds",
            "Seconds from the cause of a sync to its end, by operation: create, update, sync, "
            "kill, terminated",
            ["operation_type"],
            buckets=SECONDS,
            registry=registry,
        )
        self.worker_start_duration = Histogram(
            "kubelet_pod_worker_start_duration_seconds",
            "Seconds from seeing a pod to starting its worker",
            buckets=SECONDS,
            registry=registry,
        )
        self.containers_per_pod = Histogram(
            "kubelet_containers_per_pod_count",
            "Containers of each pod that starts",
            buckets=(1, 2, 4, 8, 16),
            registry=registry,
        )
        self.desired_pods = self._pods_gauge(
            "kubelet_desired_pods", "Pods that the node is to run", registry
        )
        self.active_pods = self._pods_gauge(
            "kubelet_active_pods", "Pods that hold resources of the node", registry
        )
        self.mirror_pods = Gauge(
            "kubelet_mirror_pods", "Mirror pods that are known", registry=registry
        )
        self.managed_ephemeral_containers = Gauge(
            "kubelet_managed_ephemeral_containers",
            "Ephemeral containers of the pods that are wanted",
            registry=registry,
        )
        self.orphan_volumes_cleaned = Gauge(
            "kubelet_orphan_pod_cleaned_volumes",
            "Pods that are gone whose directory the last clean-up removed",
            registry=registry,
        )
        self.orphan_volumes_errors = Gauge(
            "kubelet_orphan_pod_cleaned_volumes_errors",
            "Pods that are gone whose directory the last clean-up could not remove",
            registry=registry,
        )
        self.working_pods = Gauge(
            "kubelet_working_pods",
            "Pods that have a worker, by lifecycle, origin and kind",
            ["lifecycle", "config", "static"],
            registry=registry,
        )
        self.orphaned_runtime_pods = Counter(
            "kubelet_orphaned_runtime_pods_total",
            "Pods found in the runtime that nobody wants",
            registry=registry,
        )
        self.restarted_pods = Counter(
            "kubelet_restarted_pods_total",
            "Pods started again under the UID of one that had ended",
            ["static"],
            registry=registry,
        )
        self.pod_start_duration = Histogram(
            "kubelet_pod_start_duration_seconds",
            "Seconds from seeing a pod to seeing it run",
            buckets=_START_BUCKETS,
            registry=registry,
        )
        self.pod_start_total_duration = Histogram(
            "kubelet_pod_start_total_duration_seconds",
            "Seconds from creating a pod to seeing it run, pulls and init containers included",
            buckets=_START_BUCKETS,
            registry=registry,
        )
        self.pod_start_sli_duration = Histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "Seconds from creating a pod to seeing it run, without pulls and init containers",
            buckets=_START_BUCKETS,
            registry=registry,
        )
        self.status_sync_duration = Histogram(
            "kubelet_pod_status_sync_duration_seconds",
            "Seconds from a change of a pod's status until the API server has it",
            buckets=_STATUS_BUCKETS,
            registry=registry,
        )
        self.terminated_containers = Counter(
            "kubelet_terminated_containers_total",
            "Containers that ended, by type, exit code and reason",
            ["container_type", "exit_code", "reason"],
            registry=registry,
        )
        self.admission_rejections = Counter(
            "kubelet_admission_rejections_total",
            "Pods that were not admitted",
            ["reason"],
            registry=registry,
        )
        self._preemptions: Tally[str] = Tally()
        registry.register(_Preemptions(self._preemptions))

    def preempted(self, signal: str) -> None:
        """A pod has ended to make room for a critical one, in want of this resource."""
        self._preemptions[signal] += 1

    @staticmethod
    def _pods_gauge(name: str, text: str, registry: CollectorRegistry) -> Gauge:
        gauge = Gauge(name, text, ["static"], registry=registry)
        for value in ("", "true"):
            gauge.labels(value)
        return gauge

    def set_working(self, working: Iterable[tuple[WorkerPhase, str, str]]) -> None:
        """Show how many workers there are per (phase, config, static label)."""
        tally = Tally(working)
        for lifecycle in _LIFECYCLES:
            for config, statics in _CONFIGS.items():
                for static in statics:
                    figure = tally[(lifecycle, config, static)]
                    self.working_pods.labels(lifecycle.value, config, static).set(figure)


class _Refresh(Collector):
    """Has no metrics of its own; what is read after it is up to date."""

    def __init__(self, metrics: PodMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """No names."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """No samples."""
        self._metrics.refresh()
        return ()


class _Preemptions(Collector):
    """A counter under the kubelet's name, which lacks the ``_total`` that the library adds."""

    _NAME = "kubelet_preemptions"

    def __init__(self, tally: Mapping[str, int]) -> None:
        self._tally = tally

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """One sample for each resource of which there was too little."""
        family = self._family()
        for signal, count in self._tally.items():
            family.add_sample(self._NAME, {"preemption_signal": signal}, count)
        return [family]

    def _family(self) -> Metric:
        return Metric(self._NAME, "Pods that ended to make room for critical ones", "unknown")


def count_ends(metrics: PodMetrics, before: PodStatus | None, now: PodStatus) -> None:
    """Count the containers that ``now`` shows as ended and ``before`` did not."""
    before = before or PodStatus()
    for kind, old, new in (
        ("container", before.container_statuses, now.container_statuses),
        ("init_container", before.init_container_statuses, now.init_container_statuses),
        (
            "ephemeral_container",
            before.ephemeral_container_statuses,
            now.ephemeral_container_statuses,
        ),
    ):
        ended = {status.name for status in old if status.state.terminated is not None}
        for status in new:
            end = status.state.terminated
            if end is not None and status.name not in ended:
                counter = metrics.terminated_containers
                counter.labels(kind, str(end.exit_code), end.reason).inc()
