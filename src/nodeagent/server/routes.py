"""The routes of the healthz port and of the read-only port."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from nodeagent.api import Pod
from nodeagent.api.codec import encode
from nodeagent.duration import parse_duration
from nodeagent.journal import Journal, json_line
from nodeagent.server.health import CheckResult, HealthChecks, healthy, render_json, render_text

_PLAIN: Final = "text/plain"
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def health_app(
    checks: HealthChecks, registry: CollectorRegistry, journal: Journal, node_name: str = ""
) -> web.Application:
    """healthz, livez, readyz, metrics and the journal.

    Args:
        checks: the health checks.
        registry: the metrics.
        journal: the flight recorder.
        node_name: name of the node, which static pods carry behind their own.
    """
    app = web.Application(client_max_size=64 * 1024)
    for probe in ("healthz", "livez", "readyz"):
        app.router.add_get(f"/{probe}", _probe_handler(checks, probe))
        app.router.add_get(f"/{probe}/{{check}}", _check_handler(checks, probe))
    app.router.add_get("/metrics", _metrics_handler(registry))
    app.router.add_get("/debug/journal", _journal_handler(journal, node_name))
    return app


def read_only_app(pods: Callable[[], Sequence[Pod]]) -> web.Application:
    """``/pods``: what the agent runs, as a PodList with status."""

    async def list_pods(_request: web.Request) -> web.Response:
        items = b",".join(encode(pod) for pod in pods())
        body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[' + items + b"]}\n"
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

    app = web.Application(client_max_size=64 * 1024)
    app.router.add_get("/pods", list_pods)
    app.router.add_get("/pods/", list_pods)
    return app


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _probe_handler(checks: HealthChecks, probe: str) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        results = checks.of(probe, request.query.getall("exclude", []))
        return _answer(request, probe, results)

    return handle


def _check_handler(checks: HealthChecks, probe: str) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        results = checks.one(request.match_info["check"])
        if not results:
            known = ", ".join(checks.names)
            text = f"no check {request.match_info['check']!r}; there are: {known}\n"
            return web.Response(status=404, text=text, headers=_HEADERS)
        return _answer(request, probe, results)

    return handle


def _answer(
    request: web.Request, probe: str, results: Sequence[tuple[str, CheckResult]]
) -> web.Response:
    status = 200 if healthy(results) else 500
    if "application/json" in request.headers.get("Accept", ""):
        body = json_line(render_json(probe, results))
        return web.Response(
            status=status, body=body, content_type="application/json", headers=_HEADERS
        )
    text = render_text(probe, results, verbose="verbose" in request.query)
    # A cause may name a file, and file names need not be Unicode.
    body = text.encode(errors="backslashreplace")
    return web.Response(
        status=status, body=body, content_type=_PLAIN, charset="utf-8", headers=_HEADERS
    )


def _metrics_handler(registry: CollectorRegistry) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        headers = {**_HEADERS, "Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    return handle


def _journal_handler(journal: Journal, node_name: str) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            since = _since(request.query.get("since", ""), journal.now)
        except ValueError as error:
            return web.Response(status=400, text=f"since: {error}\n", headers=_HEADERS)
        pod = request.query.get("pod", "")
        records = journal.select(pod, since)
        if pod and not records:
            # People know a static pod by the name in its manifest.
            records = journal.select(f"{pod}-{node_name}", since)
        lines = b"".join(json_line(journal.describe(r)) for r in records)
        return web.Response(body=lines, content_type="application/x-ndjson", headers=_HEADERS)

    return handle


def _since(text: str, now: float) -> float:
    """Monotonic seconds from an age (``5m``, ``30s``) or from the ``at`` of a record."""
    if not text:
        return 0.0
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    age = parse_duration(text)
    if age < 0:
        msg = f"{text!r} is in the future (write an age like 5m)"
        raise ValueError(msg)
    return now - age
