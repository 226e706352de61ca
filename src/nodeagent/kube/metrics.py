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
        # Looking a child up by its labels takes longer than counting.
        self._counters: dict[tuple[str, str, str], Counter] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}

    def answered(self, method: str, host: str, status: int, seconds: float) -> None:
        """A request got an answer, good or bad."""
        self._counter(str(status), method, host).inc()
        histogram = self._histograms.get((method, host))
        if histogram is None:
            histogram = self._histograms[method, host] = self._duration.labels(method, host)
        histogram.observe(seconds)

    def failed(self, method: str, host: str) -> None:
        """A request got no answer."""
        self._counter("<error>", method, host).inc()

    def _counter(self, code: str, method: str, host: str) -> Counter:
        key = code, method, host
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._requests.labels(*key)
        return counter
