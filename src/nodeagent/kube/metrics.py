"""Figures about requests to the API server, under client-go's names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class ClientMetrics:
    """The metrics of all clients of one agent.

    Args:
        registry: where they are registered; two agents in one process have two.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server that were answered, by status code, or not (<error>)",
            ["code", "method", "host"],
            registry=registry,
        )
        self._duration = Histogram(
            "rest_client_request_duration_seconds",
            "Seconds until a request was answered; of a watch, until it was open",
            ["verb", "host"],
            buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
            registry=registry,
        )

    def answered(self, method: str, host: str, status: int, seconds: float) -> None:
        """A request got an answer, good or bad."""
        self._requests.labels(str(status), method, host).inc()
        self._duration.labels(method, host).observe(seconds)

    def failed(self, method: str, host: str) -> None:
        """A request got no answer."""
        self._requests.labels("<error>", method, host).inc()
