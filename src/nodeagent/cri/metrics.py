"""Metrics of runtime calls, under the kubelet's names."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

_NEEDS_CONFIG: Final = "1.37.0"
"""The release of Kubernetes from which on a runtime must tell its configuration."""

# From 5 ms, two and a half times each, to a little over 12 minutes.
_BUCKETS: Final = tuple(0.005 * 2.5**step for step in range(14))


class RuntimeMetrics:
    """Counts and times runtime calls by operation.

    Args:
        registry: where the metrics are registered; one instance for each registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.operations = Counter(
            "kubelet_runtime_operations",
            "Runtime operations by type.",
            ["operation_type"],
            registry=registry,
        )
        self.errors = Counter(
            "kubelet_runtime_operations_errors",
            "Runtime operations that failed, by type.",
            ["operation_type"],
            registry=registry,
        )
        self.duration = Histogram(
            "kubelet_runtime_operations_duration_seconds",
            "How long runtime operations take, by type.",
            ["operation_type"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._known: dict[str, tuple[Counter, Histogram]] = {}
        self.sandbox_duration = Histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "How long starting a pod sandbox takes, by runtime handler.",
            ["runtime_handler"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.sandbox_errors = Counter(
            "kubelet_run_podsandbox_errors",
            "Pod sandboxes that failed to start, by runtime handler.",
            ["runtime_handler"],
            registry=registry,
        )

        self._losing_support = Gauge(
            "kubelet_cri_losing_support",
            "Set when the runtime lacks a call that the kubelet of this version needs.",
            ["version"],
            registry=registry,
        )

    def loses_support(self) -> None:
        """The runtime does not tell its configuration."""
        self._losing_support.labels(_NEEDS_CONFIG).set(1)

    @contextmanager
    def operation(self, kind: str) -> Iterator[None]:
        """Count and time one operation; one that is cancelled counts as no error."""
        # The loop's own clock, and metrics kept by kind: this is done for every call.
        time = asyncio.get_running_loop().time
        counted, timed = self._by_kind(kind)
        counted.inc()
        began = time()
        try:
            yield
        except Exception:
            self.errors.labels(kind).inc()
            raise
        finally:
            timed.observe(time() - began)

    def _by_kind(self, kind: str) -> tuple[Counter, Histogram]:
        known = self._known.get(kind)
        if known is None:
            known = self.operations.labels(kind), self.duration.labels(kind)
            self._known[kind] = known
        return known

    @contextmanager
    def sandbox_start(self, handler: str) -> Iterator[None]:
        """Count and time the start of one sandbox."""
        began = anyio.current_time()
        try:
            yield
        except Exception:
            self.sandbox_errors.labels(handler).inc()
            raise
        finally:
            self.sandbox_duration.labels(handler).observe(anyio.current_time() - began)
