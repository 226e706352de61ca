"""Counts requests, under the kubelet's names.

docs/metrics.md, "/metrics".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nodeagent.plain_counter import SECONDS
from nodeagent.server.app import App, Request, Response

READ_WRITE: Final = "readwrite"
READ_ONLY: Final = "readonly"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
_FIRST_STEPS: Final = (
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "livez",
    "logs",
    "metrics",
    "pods",
    "portForward",
    "readyz",
    "run",
    "runningpods",
    "stats",
    "statusz",
)
_LONG: Final = ("attach", "exec", "portForward")
_LABELS: Final = ("method", "path", "server_type", "long_running")


class HttpMetrics:
    """The metrics of requests.

    Args:
        registry: where they are registered; one instance for each registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "kubelet_http_requests", "Requests that were answered", _LABELS, registry=registry
        )
        self._durations = Histogram(
            "kubelet_http_requests_duration_seconds",
            "Seconds until a request was answered",
            _LABELS,
            buckets=SECONDS,
            registry=registry,
        )
        self._inflight = Gauge(
            "kubelet_http_inflight_requests",
            "Requests that are being answered",
            _LABELS,
            registry=registry,
        )
        self._websockets = Counter(
            "kubelet_websocket_streaming_requests",
            "Requests for streams over WebSocket",
            ["subresource"],
            registry=registry,
        )

    @contextmanager
    def counted(
        self, method: str, path: str, upgrade: str = "", server_type: str = READ_WRITE
    ) -> Iterator[None]:
        """Count a request, and for how long it is being answered.

        Args:
            method: of HTTP.
            path: without the query.
            upgrade: the protocol that it asks for.
            server_type: ``readwrite`` for the API port, ``readonly`` for the other.
        """
        step = shown_path(path)
        long = step in _LONG
        shown = method if method in _METHODS else "other"
        values = (shown, step, server_type, "true" if long else "false")
        if step in _LONG and upgrade.lower() == "websocket":
            self._websockets.labels(step.lower()).inc()
        inflight = self._inflight.labels(*values)
        inflight.inc()
        time = asyncio.get_running_loop().time
        began = time()
        try:
            yield
        finally:
            inflight.dec()
            self._requests.labels(*values).inc()
            self._durations.labels(*values).observe(time() - began)


def shown_path(path: str) -> str:
    """The first step of a path that is known, else ``other``; of metrics the second one, too."""
    first, _, rest = path.removeprefix("/").partition("/")
    if first not in _FIRST_STEPS:
        return "other"
    second = rest.partition("/")[0]
    if first == "metrics" and second:
        known = second in ("cadvisor", "probes", "resource", "slis")
        return f"metrics/{second}" if known else "other"
    return first


class CountedApp(App):
    """An application whose requests are counted.

    Args:
        app: which answers.
        metrics: where they are counted.
        server_type: which port it is served on.
    """

    def __init__(self, app: App, metrics: HttpMetrics, server_type: str) -> None:
        super().__init__()
        self.add(app)
        self._metrics = metrics
        self._server_type = server_type

    async def answer(self, request: Request) -> Response:
        """The answer to a request; whatever the handler raises comes out."""
        with self._metrics.counted(request.method, request.path, server_type=self._server_type):
            return await super().answer(request)
