"""What pods and node use, over HTTP: the summary, and metrics that are made of it.

docs/behaviour/stats.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from anyio import to_thread
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from nodeagent.log import Log
from nodeagent.server.app import App, Handler, Request, Response
from nodeagent.server.health import HealthChecks
from nodeagent.stats import StatsCollector, StatsError

if TYPE_CHECKING:
    from nodeagent.stats.records import Snapshot

log = Log("server")

_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_PROBES: Final = (
    "process_start_time_seconds",
    "prober_probe_total",
    *(f"prober_probe_duration_seconds{ending}" for ending in ("_bucket", "_count", "_sum")),
)
_NO: Final = ("", "0", "f", "F", "false", "FALSE", "False")


def stats_app(collector: StatsCollector, registry: CollectorRegistry, checks: HealthChecks) -> App:
    """``/stats/summary`` and the metrics beside ``/metrics``.

    Args:
        collector: has the figures.
        registry: the agent's metrics, those of probes among them.
        checks: the health checks, which remember what they found.
    """
    app = App()
    for path in ("/stats/summary", "/stats/summary/"):
        app.get(path, _summary_handler(collector), post=True)
    app.get("/metrics/resource", _metrics_handler(collector, "resource"))
    app.get("/metrics/cadvisor", _metrics_handler(collector, "cadvisor"))
    app.get("/metrics/probes", _probes_handler(registry))
    app.get("/metrics/slis", _slis_handler(checks))
    return app


def _summary_handler(collector: StatsCollector) -> Handler:
    async def handle(request: Request) -> Response:
        brief = request.value("only_cpu_and_memory") not in _NO

        def write(found: Snapshot) -> bytes:
            from nodeagent.stats.summary import encode_summary

            return encode_summary(found, only_cpu_and_memory=brief)

        try:
            body = await collector.text("brief" if brief else "summary", write)
        except StatsError as error:
            text = f"Internal Error: {error}\n".encode(errors="backslashreplace")
            return Response(500, text, headers=_HEADERS)
        return Response(200, body, _JSON, _HEADERS)

    return handle


def _metrics_handler(collector: StatsCollector, kind: str) -> Handler:
    async def handle(_request: Request) -> Response:
        def write(found: Snapshot | None) -> bytes:
            from nodeagent.stats.container_metrics import container_metrics
            from nodeagent.stats.resource_metrics import resource_metrics

            if kind == "resource":
                return resource_metrics(found)
            return container_metrics(found, _versions())

        try:
            body = await collector.text(kind, write)
        except StatsError as error:
            log.warning("no_stats", path=f"/metrics/{kind}", cause=str(error))
            body = write(None)
        return Response(200, body, _TEXT, _HEADERS)

    return handle


def _versions() -> dict[str, str]:
    from nodeagent._version import __version__

    return {
        "cadvisorRevision": "",
        "cadvisorVersion": f"nodeagent {__version__}",
        "dockerVersion": "",
        "kernelVersion": os.uname().release,
        "osVersion": "",
    }


def _probes_handler(registry: CollectorRegistry) -> Handler:
    async def handle(_request: Request) -> Response:
        own = registry.restricted_registry(_PROBES)
        # In a thread: the start of the process among them may have to be read first.
        body = await to_thread.run_sync(generate_latest, own)
        return Response(200, body, CONTENT_TYPE_LATEST, _HEADERS)

    return handle


def _slis_handler(checks: HealthChecks) -> Handler:
    async def handle(_request: Request) -> Response:
        from nodeagent.stats.exposition import Exposition, labels

        text = Exposition()
        text.family("kubernetes_healthcheck", "gauge", "[STABLE] The last result of a health check")
        text.family("kubernetes_healthchecks_total", "counter", "[STABLE] Results of health checks")
        for (name, probe), good in checks.last.items():
            text.add("kubernetes_healthcheck", int(good), labels({"name": name, "type": probe}))
        for (name, probe, status), count in checks.counts.items():
            named = labels({"name": name, "status": status, "type": probe})
            text.add("kubernetes_healthchecks_total", count, named)
        return Response(200, text.text(), _TEXT, _HEADERS)

    return handle
