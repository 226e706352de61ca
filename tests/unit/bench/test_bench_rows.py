"""Every measurement gives the figures that it promises, in small. No figure is asserted here."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.bench import (
    actions,
    api,
    burst,
    idle,
    inspection,
    logs,
    probes,
    react,
    soak,
    splicing,
    startup,
    status,
    suite,
    volumes,
    watch,
)
from nodeagent.bench.beds import Place
from nodeagent.bench.children import agent, simulated_runtime, work_dir
from nodeagent.bench.figures import NOT_MEASURED, BenchError
from nodeagent.cli import app
from nodeagent.cri import CRIClient
from nodeagent.testing.api_store import Request
from nodeagent.testing.cri_configs import sandbox_config

pytestmark = pytest.mark.realtime


def measured(row: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run a measurement as the command does; its figures go into JSON."""

    async def run() -> dict[str, Any]:
        with anyio.fail_after(50):
            return await row

    figures = anyio.run(run)
    assert json.loads(json.dumps(figures)) == figures
    return figures


def positive(figures: dict[str, Any], *names: str) -> None:
    for name in names:
        assert figures[name] > 0, name


def test_looks_at_changed_pods_are_timed_both_ways() -> None:
    figures = measured(inspection.run(5, 3, 1.0, repeats=2, serial_repeats=1))
    assert (figures["pods"], figures["changed"]) == (5, 3)
    positive(figures, "concurrent_ms", "serial_ms", "serial_per_concurrent")
    positive(figures, "concurrent_p50_ms", "concurrent_p99_ms", "serial_p50_ms", "serial_p99_ms")


@pytest.mark.parametrize(("pods", "changed"), [(0, 0), (2, 3), (3, 0)])
def test_a_look_at_nothing_is_refused(pods: int, changed: int) -> None:
    with pytest.raises(ValueError, match="no measure"):
        measured(inspection.run(pods, changed, 1.0))


def test_an_agent_at_rest_is_read_from_the_kernel() -> None:
    figures = measured(idle.run(2, 2, 0.3, settle=0.1))
    assert (figures["pods"], figures["containers"]) == (2, 4)
    positive(figures, "rss_mb", "rss_begin_mb", "threads", "fds", "seconds")
    assert figures["cpu_percent"] >= 0


def test_replacements_and_own_actions_are_timed_by_what_the_runtime_and_the_journal_say() -> None:
    figures = measured(react.run(2, settle=0.2))
    assert (figures["runtime"], figures["pods"]) == ("simulated", 2)
    positive(figures, "p50_ms", "p99_ms", "worst_ms", "kill_p50_ms", "own_actions")
    assert figures["own_action_visible_p99_ms"] >= 0


def test_an_own_action_is_seen_when_the_cache_shows_it() -> None:
    def record(component: str, what: str, ms: int, cid: str) -> dict[str, Any]:
        fields = {"id": cid}
        return {"component": component, "what": what, "wall_ns": ms * 10**6, "fields": fields}

    records = [
        record("runtime", "ContainerStarted", 1, "early"),
        record("pleg", "ContainerStarted", 2, "early"),
        record("pleg", "ContainerStarted", 10, "a"),  # an event of the runtime was faster
        record("runtime", "ContainerStarted", 11, "a"),
        record("runtime", "ContainerStarted", 12, "b"),
        record("pleg", "ContainerStarted", 15, "b"),
        record("pleg", "ContainerStarted", 19, "b"),
        record("runtime", "ContainerCreated", 20, "c"),
        record("runtime", "ContainerStarted", 21, "unseen"),
    ]
    assert react.own_actions_ms(records, 5 * 10**6) == [0.0, 3.0]


def test_a_burst_is_timed_with_the_agent_and_with_the_bare_calls() -> None:
    figures = measured(burst.run(2, repeats=1, concurrencies=(1, 2)))
    assert (figures["runtime"], figures["pods"]) == ("simulated", 2)
    assert figures["bare_s_by_concurrency"].keys() == {"1", "2"}
    assert figures["bare_s"] == min(figures["bare_s_by_concurrency"].values())
    positive(figures, "agent_s", "agent_known_s", "ratio", "agent_pod_p50_ms", "agent_pod_p99_ms")


@pytest.mark.parametrize("row", [burst.run, react.run])
def test_nothing_is_measured_without_pods(row: Any) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        measured(row(0))


def test_a_runtime_that_does_not_answer_is_named(tmp_path: Path) -> None:
    place = Place(f"unix://{tmp_path}/none.sock", "image")
    with pytest.raises(BenchError, match=r"none\.sock"):
        measured(react.run(1, place))


def test_a_runtime_with_pods_of_others_is_refused() -> None:
    async def run() -> dict[str, Any]:
        with work_dir() as base:
            async with simulated_runtime(base) as runtime, CRIClient(runtime.endpoint) as cri:
                config = sandbox_config("precious", namespace="production")
                await cri.run_pod_sandbox(config)
                return await burst.run(1, Place(runtime.endpoint, "image"))

    with pytest.raises(BenchError, match=r"the pod production/precious, which .* would stop"):
        measured(run())


def test_rows_on_containerd_say_why_they_were_not_measured() -> None:
    real = suite.Containerd(None, "no root", why_no_cluster="no root")
    for name in ("react containerd", "burst containerd", "e2e-start", "idle cluster"):
        assert anyio.run(suite.ROWS[name], suite.Sizes(), real) == {NOT_MEASURED: "no root"}


def test_a_soak_says_how_soon_pods_converge_and_what_grows() -> None:
    figures = measured(soak.run(0.01, 2, seed=3, round_s=0.5, warm_up_s=0.0))
    assert (figures["pods"], figures["rounds"]) == (2, 1)
    positive(figures, "faults", "rss_first_mb", "rss_last_mb", "rss_worst_mb", "tasks_first")
    for name in ("converged_p50_s", "converged_p99_s", "converged_worst_s", "fds_growth"):
        assert figures[name] >= 0
    assert {"rss_growth_percent", "tasks_growth"} <= figures.keys()


def test_a_soak_without_chaos_only_waits() -> None:
    figures = measured(soak.run(0.01, 1, chaos=False, round_s=0.5))
    assert (figures["faults"], figures["edits"]) == (0, 0)


@pytest.mark.parametrize(("minutes", "pods"), [(0, 1), (1, 0)])
def test_a_soak_of_nothing_is_refused(minutes: float, pods: int) -> None:
    with pytest.raises(ValueError, match="no measure"):
        measured(soak.run(minutes, pods))


def test_the_start_is_timed_and_says_what_is_loaded() -> None:
    figures = measured(startup.run(1))
    positive(figures, "startup_ms", "startup_p50_ms", "startup_p99_ms", "modules")
    assert figures["kubernetes_asyncio_imported"] is False
    assert figures["cryptography_imported"] is False


def test_probes_are_timed_together_and_by_kind() -> None:
    figures = measured(probes.run(2, 4, 1, 1.5))
    for row in (figures, *(figures[kind] for kind in probes.KINDS)):
        positive(row, "probes_per_s", "cpu_us_per_probe", "late_p99_ms", "fds_begin")
        assert row["failed"] == 0


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 0, 1.0), (1, 1, 1, 0.0)])
def test_no_probes_are_no_measure(sizes: tuple[int, int, int, float]) -> None:
    with pytest.raises(ValueError, match="no measure"):
        measured(probes.run(*sizes))


def test_an_agent_that_does_not_start_is_named_with_what_it_said() -> None:
    async def run() -> dict[str, Any]:
        with work_dir() as base:
            async with agent(base, "nonsense"):
                return {}

    with pytest.raises(BenchError, match="ended with code 2") as caught:
        measured(run())
    assert "--container-runtime-endpoint" in str(caught.value)


def test_the_suite_has_a_row_for_each_measurement_and_a_failed_one_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def good(_sizes: suite.Sizes, _real: suite.Containerd) -> dict[str, Any]:
        return {"figure_ms": 1.0}

    async def bad(_sizes: suite.Sizes, _real: suite.Containerd) -> dict[str, Any]:
        raise BenchError("the runtime does not answer")

    monkeypatch.setattr(suite, "ROWS", {"good": good, "bad": bad})
    told: list[str] = []
    result = measured(suite.run(tell=told.append))
    assert told == ["good", "bad"]
    assert result["rows"] == {
        "good": {"figure_ms": 1.0},
        "bad": {NOT_MEASURED: "failed: the runtime does not answer"},
    }
    assert {"cpu", "cores", "kernel", "date"} <= result["machine"].keys()


def test_the_command_prints_json_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["bench", "relist", "--pods=2", "--containers-per-pod=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["containers"] == 2
    assert app.invoke(["bench", "relist", "--pods=2", "--containers-per-pod=1"]) == 0
    assert "interned_ms" in capsys.readouterr().out


def test_more_changed_pods_than_pods_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.invoke(["bench", "relist", "--pods=2", "--changed=3"]) == 2
    assert capsys.readouterr().err == ("nodeagent: --changed=3: must not be more than --pods=2\n")


def test_decisions_are_timed_in_every_situation() -> None:
    figures = actions.run(2, 5)
    assert json.loads(json.dumps(figures)) == figures
    rows = figures["situations"]
    assert figures["median_us"] == rows[figures["worst_situation"]]["p50_us"]
    assert figures["median_us"] == max(row["p50_us"] for row in rows.values()) > 0


@pytest.mark.parametrize(("containers", "repeats"), [(0, 1), (1, 0)])
def test_no_decisions_are_no_measure(containers: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        actions.run(containers, repeats)


def test_requests_for_statuses_are_counted_in_bursts_and_at_rest() -> None:
    figures = measured(status.run(3, 1.0, 0.5, settle=0.1))
    for row in (figures["burst"], figures["again"]):
        positive(row, "changes", "patches_per_pod", "told_s")
        assert row["gets_per_pod"] >= 0
    rest = figures["rest"]
    positive(rest, "seconds")
    assert min(rest["pod_writes"], rest["node_writes"], rest["lease_writes"]) >= 0
    assert "rest" not in measured(status.run(1, 0.0, 0.0))


def test_answers_to_monitoring_are_timed() -> None:
    figures = measured(api.run(2, 1, 2, settle=0.1))
    for name in api.PATHS:
        positive(figures[name], "p50_ms", "p99_ms", "worst_ms", "first_ms", "kb")
    positive(figures, "loop_lag_p99_ms", "loop_lag_worst_ms", "rss_before_mb", "rss_after_mb")
    with pytest.raises(ValueError, match="no measure"):
        anyio.run(api.run, 1, 1, 0)


def test_streams_are_timed_in_both_directions() -> None:
    figures = measured(splicing.run(1, 2))
    for name in {"agent", "socat"} & set(figures):
        positive(figures[name], "to_client_mb_s", "to_runtime_mb_s")
    positive(figures, "slowest_mb_s", "wanted_mb_s", "rss_before_mb", "rss_worst_mb")
    assert figures["wanted_mb_s"] <= splicing.ENOUGH_MB_S
    with pytest.raises(ValueError, match="no measure"):
        anyio.run(splicing.run, 0, 1)


def test_logs_are_served_and_followed() -> None:
    figures = measured(logs.run(1, 1, 2, 0.1))
    positive(figures, "agent_mb_s", "tail_p50_ms", "tail_worst_ms")
    assert figures.get("cat_mb_s", 1) > 0
    assert figures["quiet"]["followers"] == 2
    for name in ("cpu_percent_alone", "cpu_percent", "more_percent"):
        assert figures["quiet"][name] >= 0
    with pytest.raises(ValueError, match="no measure"):
        anyio.run(logs.run, 0, 1, 1, 1)


def test_half_of_socat_is_enough() -> None:
    rates = {"to_client_mb_s": 150.0, "to_runtime_mb_s": 120.0}
    assert splicing.compared({"agent": rates})["wanted_mb_s"] == splicing.ENOUGH_MB_S
    other = {"to_client_mb_s": 230.0, "to_runtime_mb_s": 900.0}
    found = splicing.compared({"agent": rates, "socat": other})
    assert (found["slowest_mb_s"], found["wanted_mb_s"]) == (120.0, 115.0)


def test_requests_are_told_apart_by_pod_and_kind() -> None:
    pods = "/api/v1/namespaces/bench/pods"
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node1"
    requests = [
        Request("GET", f"{pods}/a", {}),
        Request("GET", pods, {}),
        Request("PATCH", f"{pods}/a/status", {}),
        Request("PATCH", f"{pods}/b/status", {}),
        Request("DELETE", f"{pods}/b", {}),
        Request("PATCH", "/api/v1/nodes/node1/status", {}),
        Request("PUT", lease, {}),
        Request("POST", "/api/v1/namespaces/bench/events", {}),
        Request("WATCH", "/api/v1/pods", {}),
    ]
    counts = status.per_pod(requests)
    assert (counts["GET"], counts["PATCH"]) == ({"a": 1}, {"a": 1, "b": 1})
    assert status.writes(requests) == {"pods": 3, "nodes": 1, "leases": 1, "events": 1}


@pytest.mark.parametrize("sizes", [(0, 1.0, 1.0), (1, -1.0, 1.0), (1, 1.0, -1.0)])
def test_no_statuses_are_no_measure(sizes: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="no measure"):
        measured(status.run(*sizes))


def test_volumes_are_timed_when_they_are_made_changed_and_left_alone() -> None:
    figures = measured(volumes.run(3, 2, 2, 5))
    positive(figures["set_up"], "loop_ms", "wall_ms")
    positive(figures["update"], "swapped_ms")
    assert figures["rest"]["cpu_percent"] >= 0


def test_no_volumes_are_no_measure() -> None:
    with pytest.raises(ValueError, match="no measure"):
        measured(volumes.run(0, 1, 1, 1))


def test_lists_and_events_of_an_api_server_are_timed() -> None:
    figures = measured(watch.run(3, 4, 2))
    assert (figures["pods"], figures["events"]) == (3, 4)
    positive(figures, "list_mb", "list_ms", "models_ms", "list_per_models")
    positive(figures, "event_p50_ms", "event_p99_ms", "event_worst_ms")


@pytest.mark.parametrize(("pods", "events"), [(0, 1), (1, 0)])
def test_a_watch_of_nothing_is_refused(pods: int, events: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        measured(watch.run(pods, events))
