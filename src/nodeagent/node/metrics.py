"""Figures about the node, under the kubelet's names."""

from __future__ import annotations

import anyio
from prometheus_client import CollectorRegistry, Gauge


class NodeMetrics:
    """The node's name, and how long it took to become a node.

    Made when the agent starts; times are loop times, which count from the boot of the machine.

    Args:
        registry: where they are registered.
        name: the node's name.
    """

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        named = Gauge("kubelet_node_name", "The node's name", ["node"], registry=registry)
        named.labels(name).set(1)
        self._whole = Gauge(
            "kubelet_node_startup_duration_seconds",
            "Seconds from the boot of the machine until the node is ready",
            registry=registry,
        )
        before = Gauge(
            "kubelet_node_startup_pre_kubelet_duration_seconds",
            "Seconds from the boot of the machine until the agent starts",
            registry=registry,
        )
        self._before_registration = Gauge(
            "kubelet_node_startup_pre_registration_duration_seconds",
            "Seconds from the start of the agent until it registers the node",
            registry=registry,
        )
        self._registration = Gauge(
            "kubelet_node_startup_registration_duration_seconds",
            "Seconds that registering the node took",
            registry=registry,
        )
        self._after_registration = Gauge(
            "kubelet_node_startup_post_registration_duration_seconds",
            "Seconds from the registration of the node until it is ready",
            registry=registry,
        )
        self._started = anyio.current_time()
        self._began: float | None = None
        self._registered: float | None = None
        self._ready = False
        before.set(self._started)

    def registration_begins(self) -> None:
        """The API server is asked to take the node; only the first time counts."""
        if self._began is None:
            self._began = anyio.current_time()
            self._before_registration.set(self._began - self._started)

    def registered(self) -> None:
        """The API server has the node; only the first time counts."""
        if self._registered is None and self._began is not None:
            self._registered = anyio.current_time()
            self._registration.set(self._registered - self._began)

    def ready(self) -> None:
        """The API server knows that the node is ready; only the first time counts."""
        if not self._ready and self._registered is not None:
            self._ready = True
            now = anyio.current_time()
            self._after_registration.set(now - self._registered)
            self._whole.set(now)
