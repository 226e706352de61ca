"""``nodeagent run`` as people run it: real files, real processes, real signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command import Command, command
from embedded_lab import a_day, processes_with

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

POD = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers:
    - name: main
      image: %s
      command: ["/bin/sh", "-c", "%s"]
"""
SLEEP = "exec sleep 1000"


async def test_editing_breaking_and_deleting_a_manifest(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", SLEEP))
        await agent.start()
        await agent.runs("web-n1")
        first = (await agent.container("web-n1"))["containerID"]

        agent.put("web.yaml", POD % ("busybox:2", SLEEP))

        async def replaced() -> bool:
            now = await agent.container("web-n1")
            return now.get("containerID", first) != first and "running" in now["state"]

        await agent.until(replaced)
        second = (await agent.container("web-n1"))["containerID"]

        agent.put("web.yaml", POD.replace("image", "imago") % ("busybox:2", SLEEP))

        async def refused() -> bool:
            return "spec.containers[0].image: required" in await agent.journal()

        await agent.until(refused)
        assert (await agent.container("web-n1"))["containerID"] == second
        verbose = await agent.get(agent.health, "/healthz?verbose")
        assert "manifests ok, degraded: web.yaml: spec.containers[0].image: required" in verbose

        (agent.manifests / "web.yaml").unlink()

        async def gone() -> bool:
            return not await agent.pods()

        await agent.until(gone)


async def test_sigterm_leaves_pods_running_and_the_next_agent_adopts_them(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", SLEEP))
        await agent.start()
        await agent.runs("web-n1")
        before = await agent.container("web-n1")
        assert await agent.end(signal.SIGTERM) == 0
        await agent.start()
        await agent.runs("web-n1")
        after = await agent.container("web-n1")
        assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


async def test_kill_minus_nine_loses_nothing(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", SLEEP))
        await agent.start()
        await agent.runs("web-n1")
        before = await agent.container("web-n1")
        await agent.end(signal.SIGKILL)
        await agent.start()
        await agent.runs("web-n1")
        after = await agent.container("web-n1")
        assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


async def test_a_bad_edit_while_the_agent_is_away_keeps_the_pod(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", SLEEP))
        await agent.start()
        await agent.runs("web-n1")
        before = (await agent.container("web-n1"))["containerID"]
        await agent.end()
        agent.put("web.yaml", "kind: Pod\nmetadata: {name: web\n")
        await agent.start()
        await agent.runs("web-n1")
        assert (await agent.container("web-n1"))["containerID"] == before


async def test_a_container_that_is_killed_comes_back(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        seconds = a_day()
        agent.put("web.yaml", POD % ("busybox:1", f"exec sleep {seconds}"))
        await agent.start()
        await agent.runs("web-n1")
        first = await agent.container("web-n1")
        for victim in await agent.until(lambda: sleepers(seconds)):
            os.kill(victim, signal.SIGKILL)

        async def back() -> bool:
            now = await agent.container("web-n1")
            return now.get("restartCount") == 1 and "running" in now["state"]

        await agent.until(back)
        now = await agent.container("web-n1")
        assert now["containerID"] != first["containerID"]
        assert now["lastState"]["terminated"]["exitCode"] == 137


async def sleepers(seconds: str) -> list[int]:
    return processes_with(seconds)


async def test_logs_are_written_in_the_cri_format(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", "echo out; echo err >&2; exec sleep 1000"))
        await agent.start()
        await agent.runs("web-n1")

        async def lines() -> list[str]:
            found = sorted((tmp_path / "logs").glob("default_web-n1_*/main/0.log"))
            text = found[0].read_text() if found else ""
            return text.splitlines() if text.count("\n") == 2 else []

        out, err = sorted(await agent.until(lines), key=lambda line: "stderr" in line)
        assert out.split(" ", 1)[1] == "stdout F out"
        assert err.split(" ", 1)[1] == "stderr F err"


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", "trap '' TERM; while :; do sleep 1; done"))
        await agent.start("--stop-pods-on-exit", "--stop-pods-timeout=30s")
        await agent.runs("web-n1")
        agent.running.send_signal(signal.SIGTERM)

        async def stopping() -> bool:
            return "StopAll" in await agent.journal() or not await agent.answers()

        await agent.until(stopping)
        assert await agent.end(signal.SIGTERM) == -signal.SIGTERM


async def test_pods_stop_on_exit_when_asked_to(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        seconds = a_day()
        agent.put("web.yaml", POD % ("busybox:1", f"exec sleep {seconds}"))
        await agent.start("--stop-pods-on-exit")
        await agent.runs("web-n1")
        await agent.until(lambda: sleepers(seconds))
        assert await agent.end(signal.SIGTERM) == 0
        assert processes_with(seconds) == []


async def test_a_pod_with_a_long_grace_is_stopped_within_the_timeout_too(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        stubborn = POD.replace(
            "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 3600"
        )
        agent.put("web.yaml", stubborn % ("busybox:1", "trap '' TERM; while :; do sleep 1; done"))
        await agent.start("--stop-pods-on-exit", "--stop-pods-timeout=5s")
        await agent.runs("web-n1")
        assert await agent.end(signal.SIGTERM) == 0
        assert "pods_left_running" not in (tmp_path / "agent.log").read_text()


async def test_health_metrics_and_json(tmp_path: Path) -> None:
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("busybox:1", SLEEP))
        await agent.start()
        await agent.runs("web-n1")
        for path in ("/healthz", "/healthz/ping", "/healthz/syncloop", "/healthz/pleg"):
            assert await agent.get(agent.health, path) == "ok"
        assert await agent.get(agent.health, "/livez") == "ok"
        assert await agent.get(agent.health, "/readyz") == "ok"
        as_json = await agent.get(agent.health, "/healthz", Accept="application/json")
        assert '"check":"pleg","state":"ok"' in as_json

        async def complete() -> bool:
            # Gauges are set by the relist and by housekeeping, every second or two.
            page = await agent.get(agent.health, "/metrics")
            return all(f"\n{name}" in page for name in METRICS)

        await agent.until(complete)


METRICS = [
    "kubelet_containers_per_pod_count_bucket",
    "kubelet_pod_worker_duration_seconds_bucket",
    "kubelet_pod_worker_start_duration_seconds_bucket",
    "kubelet_pod_start_duration_seconds_bucket",
    "kubelet_pod_start_sli_duration_seconds_bucket",
    "kubelet_pleg_relist_duration_seconds_bucket",
    "kubelet_pleg_relist_interval_seconds_bucket",
    "kubelet_pleg_pod_relist_duration_seconds_bucket",
    "kubelet_pleg_discard_events",
    "kubelet_pleg_last_seen_seconds",
    'kubelet_running_containers{container_state="running"} 1.0',
    "kubelet_running_pods 1.0",
    'kubelet_desired_pods{static="true"}',
    'kubelet_active_pods{static="true"}',
    "kubelet_mirror_pods",
    "kubelet_working_pods",
    "kubelet_orphaned_runtime_pods_total",
    "kubelet_runtime_operations_total",
    "kubelet_runtime_operations_duration_seconds_bucket",
    "kubelet_started_containers_total",
    "kubelet_started_pods_total",
    'nodeagent_channel_depth{channel="pleg"}',
    'nodeagent_manifest_documents{source="file",verdict="good"} 1.0',
]


async def test_flags_that_cannot_be_are_one_line_and_exit_code_two(tmp_path: Path) -> None:
    agent = Command(tmp_path)
    import subprocess
    import sys

    import anyio

    done = await anyio.run_process(
        [sys.executable, "-m", "nodeagent", "run", "--healthz-port=99999"],
        check=False,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "nodeagent: --healthz-port=99999: must be a port between 1 and 65535, or 0 for none\n"
    )
    assert agent.process is None
