"""Figures over HTTP (docs/behaviour/stats.md)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.stats.stats_lab import SaidRuntime, collecting

from nodeagent.journal import Journal
from nodeagent.model import ProbeResult
from nodeagent.probes.metrics import ProbeMetrics, Tally
from nodeagent.rpc import Unavailable
from nodeagent.server import (
    Check,
    CheckResult,
    HealthChecks,
    Level,
    Request,
    Response,
    health_app,
    joined,
)
from nodeagent.server.app import App
from nodeagent.server.process_metrics import ProcessMetrics
from nodeagent.server.stats_app import stats_app

pytestmark = pytest.mark.anyio


async def ask(app: App, target: str, method: str = "GET") -> Response:
    return await app.answer(Request.of(method, target))


def samples(response: Response) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(response.body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/stats/summary", "/stats/summary/"])
async def test_sj1_the_summary_is_json(tmp_path: Path, method: str, path: str) -> None:
    async with collecting(tmp_path) as bench:
        app = stats_app(bench.collector, CollectorRegistry(), HealthChecks([]))
        response = await ask(app, path, method)
    assert (response.status, response.content_type) == (200, "application/json")
    assert json.loads(response.body)["node"]["nodeName"] == "node1"


@pytest.mark.parametrize(
    ("query", "brief"),
    [
        ("", False),
        ("?only_cpu_and_memory=true", True),
        ("?only_cpu_and_memory=false", False),
        ("?only_cpu_and_memory=0", False),
        ("?only_cpu_and_memory=", False),
        ("?only_cpu_and_memory=1", True),
    ],
)
async def test_sj2_the_brief_one(tmp_path: Path, query: str, brief: bool) -> None:
    async with collecting(tmp_path) as bench:
        app = stats_app(bench.collector, CollectorRegistry(), HealthChecks([]))
        shown = json.loads((await ask(app, f"/stats/summary{query}")).body)
    assert ("fs" not in shown["node"]) is brief


async def test_sc6_a_runtime_that_does_not_answer(tmp_path: Path) -> None:
    runtime = SaidRuntime(broken=Unavailable("connection refused", "ListPodSandbox"))
    async with collecting(tmp_path, runtime) as bench:
        app = stats_app(bench.collector, CollectorRegistry(), HealthChecks([]))
        response = await ask(app, "/stats/summary")
        assert response.status == 500
        assert response.body.startswith(b"Internal Error: ")
        assert b"connection refused" in response.body
        for path, name in (("resource", "resource"), ("cadvisor", "machine")):
            response = await ask(app, f"/metrics/{path}")
            assert response.status == 200
            assert samples(response) == {f"{name}_scrape_error": [({}, 1.0)]}


async def test_other_methods_do_not_fit(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        app = stats_app(bench.collector, CollectorRegistry(), HealthChecks([]))
        assert (await ask(app, "/stats/summary", "PUT")).headers == {"Allow": "GET,HEAD,POST"}
        assert (await ask(app, "/metrics/resource", "POST")).status == 405
        assert (await ask(app, "/stats")).status == 404


async def test_sq1_metrics_of_probes(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    ProcessMetrics(registry)
    ProcessMetrics(registry)  # as an embedder may have done
    metrics = ProbeMetrics(registry)
    tally = Tally(
        metrics, probe_type="Liveness", container="c", pod="web", namespace="default", uid="u1"
    )
    tally.count(ProbeResult.SUCCESS, 0.2)
    async with collecting(tmp_path) as bench:
        app = stats_app(bench.collector, registry, HealthChecks([]))
        told = samples(await ask(app, "/metrics/probes"))
    named = {"probe_type": "Liveness", "container": "c", "pod": "web", "namespace": "default"}
    assert told["prober_probe_total"] == [({**named, "result": "successful", "pod_uid": "u1"}, 1)]
    assert told["prober_probe_duration_seconds_count"] == [(named, 1)]
    assert "process_start_time_seconds" in told
    assert "nodeagent_probe_lateness_seconds_count" not in told


async def test_the_process_is_read_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read_on: list[int] = []
    collect = ProcessCollector.collect

    def noted(self: ProcessCollector) -> Iterable[Metric]:
        read_on.append(threading.get_ident())
        return collect(self)

    monkeypatch.setattr(ProcessCollector, "collect", noted)
    registry = CollectorRegistry()
    process = ProcessMetrics(registry)
    assert read_on == []  # an agent is made on the loop
    await process.refresh()
    assert read_on
    assert threading.get_ident() not in read_on
    assert registry.get_sample_value("process_resident_memory_bytes")
    assert len(read_on) == 1


def test_the_process_has_all_the_figures_it_announces() -> None:
    registry = CollectorRegistry()
    process = ProcessMetrics(registry)  # of an embedder who asks the registry himself
    told = {(family.name, family.type) for family in registry.collect()}
    assert told == {(family.name, family.type) for family in process.describe()}


async def test_sq2_results_of_health_checks(tmp_path: Path) -> None:
    good = [True]

    def run() -> CheckResult:
        return CheckResult() if good[0] else CheckResult(Level.FAILED, "it does not")

    checks = HealthChecks([Check("loop", run, frozenset({"healthz", "livez"}))])
    registry = CollectorRegistry()
    async with collecting(tmp_path) as bench:
        app = joined(
            health_app(checks, registry, Journal(16)), stats_app(bench.collector, registry, checks)
        )
        assert samples(await ask(app, "/metrics/slis")) == {}
        await ask(app, "/healthz")
        await ask(app, "/livez")
        good[0] = False
        await ask(app, "/healthz")
        told = samples(await ask(app, "/metrics/slis"))
    assert told["kubernetes_healthcheck"] == [
        ({"name": "loop", "type": "healthz"}, 0),
        ({"name": "loop", "type": "livez"}, 1),
    ]
    assert told["kubernetes_healthchecks_total"] == [
        ({"name": "loop", "status": "success", "type": "healthz"}, 1),
        ({"name": "loop", "status": "success", "type": "livez"}, 1),
        ({"name": "loop", "status": "error", "type": "healthz"}, 1),
    ]
