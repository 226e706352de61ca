"""Metrics of the runtime side, under the kubelet's names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (1, 5, 10, 20, 30, 60, 180, 300, 600, 1200, 1800, 2700, 3600)


class RuntimeMetrics:
    """Counters of starts and pulls.

    Args:
        registry: where they are registered; None for a private one.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.started_pods = Counter(
            "kubelet_started_pods", "Pod sandboxes that were asked for", registry=registry
        )
        self.started_pods_errors = Counter(
            "kubelet_started_pods_errors",
            "Pod sandboxes that could not be made",
            registry=registry,
        )
        self.cgroup_version = Gauge(
            "kubelet_cgroup_version", "The cgroup version of the host", registry=registry
        )
        self.started_containers = Counter(
            "kubelet_started_containers",
            "Containers that were asked for",
            ["container_type"],
            registry=registry,
        )
        self.started_containers_errors = Counter(
            "kubelet_started_containers_errors",
            "Containers that could not be started",
            ["container_type", "code"],
            registry=registry,
        )
        self.images_collected = Counter(
            "kubelet_image_garbage_collected",
            "Images that were removed because of the disk (space) or their age (age)",
            ["reason"],
            registry=registry,
        )
        self.hook_fallbacks = Counter(
            "kubelet_lifecycle_handler_http_fallbacks",
            "HTTPS requests of hooks that a server without TLS answered",
            registry=registry,
        )
        self.ensure_image_requests = Counter(
            "kubelet_image_manager_ensure_image_requests",
            "Requests to make sure that an image is there",
            ["pull_policy", "present_locally", "pull_required"],
            registry=registry,
        )
        self.image_pull_duration = Histogram(
            "kubelet_image_pull_duration_seconds",
            "How long pulling an image took",
            ["image_size_in_bytes"],
            buckets=_SECONDS,
            registry=registry,
        )


_SIZES = (
    (10 * 1024**2, "0-10MB"),
    (100 * 1024**2, "10MB-100MB"),
    (500 * 1024**2, "100MB-500MB"),
    (1024**3, "500MB-1GB"),
    (5 * 1024**3, "1GB-5GB"),
    (10 * 1024**3, "5GB-10GB"),
    (20 * 1024**3, "10GB-20GB"),
    (30 * 1024**3, "20GB-30GB"),
    (40 * 1024**3, "30GB-40GB"),
    (60 * 1024**3, "40GB-60GB"),
    (100 * 1024**3, "60GB-100GB"),
)


def size_bucket(size: int) -> str:
    """The label of an image's size; "N/A" for an unknown one."""
    if size <= 0:
        return "N/A"
    return next((label for limit, label in _SIZES if size < limit), "GT100GB")
