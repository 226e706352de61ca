"""The PLEG's metrics, under the kubelet's names where it has them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nodeagent.model import RuntimePod, SandboxState
from nodeagent.plain_counter import SECONDS, PlainCounter


class PlegMetrics:
    """All metrics of one PLEG.

    Args:
        registry: where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.relist_duration = Histogram(
            "kubelet_pleg_relist_duration_seconds",
            "Time of one look at all pods, without the inspections it starts",
            buckets=SECONDS,
            registry=registry,
        )
        self.relist_interval = Histogram(
            "kubelet_pleg_relist_interval_seconds",
            "Time between the starts of two looks at all pods",
            buckets=SECONDS,
            registry=registry,
        )
        self.pod_relist_duration = Histogram(
            "kubelet_pleg_pod_relist_duration_seconds",
            "Time of one inspection of one pod",
            buckets=SECONDS,
            registry=registry,
        )
        self.last_seen = Gauge(
            "kubelet_pleg_last_seen_seconds",
            "Unix time at which all pods were last looked at",
            registry=registry,
        )
        self.running_pods = Gauge(
            "kubelet_running_pods", "Pods that have a ready sandbox", registry=registry
        )
        self.running_containers = Gauge(
            "kubelet_running_containers",
            "Containers that the runtime knows, by state",
            ["container_state"],
            registry=registry,
        )
        self.degraded_pods = Gauge(
            "nodeagent_pleg_degraded_pods",
            "Pods that cannot be inspected at present",
            registry=registry,
        )
        self.dropped_requests = Counter(
            "nodeagent_pleg_dropped_requests",
            "Requests to look at one pod that were left to the next look at all pods",
            registry=registry,
        )
        self.unsent_events = 0
        """How often an event did not fit into the channel; it is said again."""
        self._states: set[str] = set()
        registry.register(
            PlainCounter(
                "kubelet_pleg_discard_events",
                "Events that did not fit into the channel and were said again later",
                lambda: self.unsent_events,
            )
        )

    def count_pods(self, pods: Iterable[RuntimePod]) -> None:
        """Set the gauges of running pods and containers; a state not seen any more is 0."""
        running = 0
        states: Tally[str] = Tally()
        for pod in pods:
            running += any(s.state is SandboxState.READY for s in pod.sandboxes)
            states.update(container.state.value for container in pod.containers)
        self.running_pods.set(running)
        self._states |= states.keys()
        for state in self._states:
            self.running_containers.labels(container_state=state).set(states[state])
