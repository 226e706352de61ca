"""The routes of the healthz port and of the read-only port."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from nodeagent.api import Pod
from nodeagent.api.codec import encode
from nodeagent.duration import parse_duration
from nodeagent.journal import Journal, json_line
from nodeagent.server.app import App, Handler, ItemHandler, Request, Response, joined
from nodeagent.server.health import CheckResult, HealthChecks, healthy, render_json, render_text

_JSON: Final = "application/json"
_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


async def _nothing() -> None:
    return


Refresh: TypeAlias = Callable[[], Awaitable[None]]


def health_app(
    checks: HealthChecks,
    registry: CollectorRegistry,
    journal: Journal,
    node_name: str = "",
    refresh: Refresh = _nothing,
) -> App:
    """healthz, livez, readyz, metrics and the journal.

    Args:
        checks: the health checks.
        registry: the metrics.
        journal: the flight recorder.
        node_name: name of the node, which static pods carry behind their own.
        refresh: measures what is measured only when metrics are asked for.
    """
    app = App()
    for probe in ("healthz", "livez", "readyz"):
        app.get(f"/{probe}", _probe_handler(checks, probe))
        app.get_item(f"/{probe}", _check_handler(checks, probe))
    app.get("/debug/journal", _journal_handler(journal, node_name))
    return joined(app, metrics_app(registry, refresh))


def metrics_app(registry: CollectorRegistry, refresh: Refresh = _nothing) -> App:
    """``/metrics``.

    Args:
        registry: the metrics.
        refresh: measures what is measured only when metrics are asked for.
    """
    app = App()
    app.get("/metrics", _metrics_handler(registry, refresh))
    return app


def read_only_app(pods: Callable[[], Sequence[Pod]]) -> App:
    """``/pods``: what the agent runs, as a PodList with status."""

    async def list_pods(_request: Request) -> Response:
        items = b",".join(encode(pod) for pod in pods())
        body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[' + items + b"]}\n"
        return Response(body=body, content_type=_JSON, headers=_HEADERS)

    app = App()
    app.get("/pods", list_pods)
    app.get("/pods/", list_pods)
    return app


def _probe_handler(checks: HealthChecks, probe: str) -> Handler:
    async def handle(request: Request) -> Response:
        left_out = list(dict.fromkeys(request.values("exclude")))
        results = checks.of(probe, left_out)
        known = checks.deciding(probe)
        excluded = [name for name in known if name in left_out]
        unknown = sorted(name for name in left_out if name not in known)
        return _answer(request, probe, results, excluded, unknown)

    return handle


def _check_handler(checks: HealthChecks, probe: str) -> ItemHandler:
    async def handle(request: Request, check: str) -> Response:
        results = checks.one(check)
        if not results:
            text = f"no check {check!r}; there are: {', '.join(checks.names)}\n"
            return Response(404, _bytes(text), headers=_HEADERS)
        return _answer(request, probe, results)

    return handle


def _answer(
    request: Request,
    probe: str,
    results: Sequence[tuple[str, CheckResult]],
    excluded: Sequence[str] = (),
    unknown: Sequence[str] = (),
) -> Response:
    status = 200 if healthy(results) else 500
    if "application/json" in request.headers.get("accept", ""):
        body = json_line(render_json(probe, results))
        return Response(status, body, _JSON, _HEADERS)
    verbose = request.has("verbose")
    text = render_text(probe, results, verbose=verbose, excluded=excluded, unknown=unknown)
    return Response(status, _bytes(text), headers=_HEADERS)


def _bytes(text: str) -> bytes:
    # A cause may name a file, and file names need not be Unicode.
    return text.encode(errors="backslashreplace")


def _metrics_handler(registry: CollectorRegistry, refresh: Refresh) -> Handler:
    async def handle(_request: Request) -> Response:
        await refresh()
        return Response(200, generate_latest(registry), CONTENT_TYPE_LATEST, _HEADERS)

    return handle


def _journal_handler(journal: Journal, node_name: str) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            since = _since(request.value("since"), journal.now)
        except ValueError as error:
            return Response(400, _bytes(f"since: {error}\n"), headers=_HEADERS)
        pod = request.value("pod")
        records = journal.select(pod, since)
        if pod and not records:
            # People know a static pod by the name in its manifest.
            records = journal.select(f"{pod}-{node_name}", since)
        lines = b"".join(json_line(journal.describe(r)) for r in records)
        return Response(200, lines, "application/x-ndjson", _HEADERS)

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
