"""Figures of probes (docs/behaviour/probes.md, BE5 and BE6)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from nodeagent.model import ProbeResult
from nodeagent.probes.metrics import ProbeMetrics, Tally

LABELS = {"probe_type": "Liveness", "container": "main", "pod": "web", "namespace": "default"}


def tally(metrics: ProbeMetrics, uid: str) -> Tally:
    return Tally(metrics, uid=uid, **LABELS)


def test_be6_a_pod_that_ends_takes_no_figures_of_its_namesake() -> None:
    registry = CollectorRegistry()
    metrics = ProbeMetrics(registry)
    old, new = tally(metrics, "old"), tally(metrics, "new")

    def durations() -> float | None:
        return registry.get_sample_value("prober_probe_duration_seconds_count", LABELS)

    def results(uid: str) -> float | None:
        labels = {**LABELS, "pod_uid": uid, "result": "successful"}
        return registry.get_sample_value("prober_probe_total", labels)

    for each in (old, new):
        each.count(ProbeResult.SUCCESS, 0.1)
    assert (durations(), results("old"), results("new")) == (2, 1, 1)
    old.remove()
    old.remove()
    new.count(ProbeResult.SUCCESS, 0.1)
    assert (durations(), results("old"), results("new")) == (3, None, 2)
    new.remove()
    assert (durations(), results("new")) == (None, None)
