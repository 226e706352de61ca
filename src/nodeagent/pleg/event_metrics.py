"""Metrics of event feeds, under the kubelet's names where it has them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nodeagent.plain_counter import SECONDS, PlainCounter


class EventMetrics:
    """Counts what feeds tell, and what they do not.

    Args:
        registry: where they are registered.

    Attributes:
        connections: streams that were opened.
        connection_errors: streams that broke or could not be opened.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = 0
        self.connection_errors = 0
        self.latency = Histogram(
            "kubelet_evented_pleg_connection_latency_seconds",
            "Time from an event in the runtime to its arrival",
            buckets=SECONDS,
            registry=registry,
        )
        self.events = Counter(
            "nodeagent_pleg_events", "Events that a feed told of", ["feed"], registry=registry
        )
        self.missed = Counter(
            "nodeagent_pleg_missed_events",
            "Changes that a relist found and no event had announced",
            registry=registry,
        )
        self.trusted = Gauge(
            "nodeagent_pleg_events_trusted",
            "Whether an event feed is followed and believed",
            registry=registry,
        )
        prefix = "kubelet_evented_pleg_connection"
        for name, help_, value in (
            ("success", "Event streams that were opened", lambda: self.connections),
            ("error", "Event streams that broke", lambda: self.connection_errors),
        ):
            registry.register(PlainCounter(f"{prefix}_{name}_count", help_, value))
