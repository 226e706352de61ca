"""Requests are counted under the kubelet's names (docs/metrics.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.server.api_lab import api_lab

from nodeagent.server.app import App, Request, Response
from nodeagent.server.http_metrics import READ_ONLY, CountedApp, HttpMetrics, shown_path

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/healthz", "healthz"),
        ("/healthz/ping", "healthz"),
        ("/containerLogs/default/web/main", "containerLogs"),
        ("/exec/default/web/main", "exec"),
        ("/metrics", "metrics"),
        ("/metrics/cadvisor", "metrics/cadvisor"),
        ("/metrics/anything", "other"),
        ("/stats/summary", "stats"),
        ("/", "other"),
        ("", "other"),
        ("/podsx", "other"),
        ("/pods/../../x", "pods"),
        ("//pods", "other"),
    ],
)
def test_paths_are_shown_by_their_first_step(path: str, shown: str) -> None:
    assert shown_path(path) == shown


async def test_a_request_is_counted_while_and_after_it_is_answered() -> None:
    registry = CollectorRegistry()
    metrics = HttpMetrics(registry)
    named = {"method": "GET", "path": "pods", "server_type": READ_ONLY, "long_running": "false"}

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"kubelet_http_{name}", named)

    seen: list[float | None] = []

    async def handle(_request: Request) -> Response:
        seen.append(value("inflight_requests"))
        raise OSError("broken")

    app = App()
    app.get("/pods", handle)
    counted = CountedApp(app, metrics, READ_ONLY)
    with pytest.raises(OSError, match="broken"):
        await counted.answer(Request.of("GET", "/pods?a=b"))
    assert seen == [1.0]
    assert value("inflight_requests") == 0
    assert value("requests_total") == 1
    assert value("requests_duration_seconds_count") == 1


async def test_the_api_port_counts_also_those_who_do_not_get_in(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        await lab.ask("/pods")
        await lab.ask("/pods", token="nonsense")
        await lab.ask("/nothing", method="PROPFIND")
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
        await lab.ask("/exec/default/none/main?command=ls&output=1", headers=upgrade)

        def count(method: str, path: str, *, long: bool = False) -> float | None:
            named = {
                "method": method,
                "path": path,
                "server_type": "readwrite",
                "long_running": "true" if long else "false",
            }
            return lab.registry.get_sample_value("kubelet_http_requests_total", named)

        assert count("GET", "pods") == 2
        assert count("other", "other") == 1
        assert count("GET", "exec", long=True) == 1
        websockets = lab.registry.get_sample_value(
            "kubelet_websocket_streaming_requests_total", {"subresource": "exec"}
        )
        assert websockets == 1
