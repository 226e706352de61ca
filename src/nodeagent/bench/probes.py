"""What probes cost, and how late they are, by kind of action and all together.

The probes are made by a probe manager in this process, on a loop like the agent's; what they ask
(an HTTP and a gRPC server, and the runtime that runs commands) are processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.streams.text import TextReceiveStream
from prometheus_client import CollectorRegistry

from nodeagent.api import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Probe,
    TCPSocketAction,
)
from nodeagent.bench.children import ended, simulated_runtime, work_dir
from nodeagent.bench.figures import BenchError, Figures, spread
from nodeagent.bench.manifests import SIMULATED_IMAGE
from nodeagent.channels import Channel
from nodeagent.cri import CRIClient
from nodeagent.journal import Journal
from nodeagent.model import PodUID, ProbeKind, ProbeUpdate
from nodeagent.probes import ProbeManager, ProbeMetrics, make_prober
from nodeagent.proto.runtime import v1

KINDS: Final = ("exec", "http", "tcp", "grpc")
_START_TIMEOUT: Final = 30.0
_WARM_UP_PERIODS: Final = 2


async def run(pods: int, probes: int, period: int, seconds: float) -> Figures:
    """Measure.

    Args:
        pods: how many, at least 1.
        probes: probes of each pod, at least 1; their actions take turns.
        period: seconds between two probes, at least 1.
        seconds: how long all together are measured; each kind alone gets a third of it.

    Returns:
        For all kinds together ``probes_per_s``, ``cpu_us_per_probe``, ``cpu_percent`` of one
        core, ``late_p50_ms``, ``late_p99_ms``, ``late_worst_ms``, how many ``failed``, and the
        ``fds`` of this process at begin and end, probes under way included, and how many more than
        before are ``left`` when no probe is made any more; the same below each kind's name.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: what is to be asked does not run.
    """
    if pods < 1 or probes < 1 or period < 1 or seconds <= 0:
        msg = f"{pods} pods with {probes} probes every {period} s for {seconds:g} s: no measure"
        raise ValueError(msg)
    with work_dir() as base:
        async with _open_bed(base) as bed:
            figures = await _measure(bed, KINDS, pods, probes, period, seconds)
            for kind in KINDS:
                figures[kind] = await _measure(bed, (kind,), pods, probes, period, seconds / 3)
    return {"pods": pods, "probes_per_pod": probes, "period_s": period, **figures}


@dataclass(frozen=True, slots=True)
class _Bed:
    """What is asked.

    Attributes:
        actions: the action of each kind, as fields of a probe.
        cri: the runtime that has the container.
        container_id: the container in which commands run.
    """

    actions: Mapping[str, Mapping[str, Any]]
    cri: CRIClient
    container_id: str


@asynccontextmanager
async def _open_bed(base: Path) -> AsyncIterator[_Bed]:
    async with (
        simulated_runtime(base) as runtime,
        CRIClient(runtime.endpoint) as cri,
        _servers(base) as ports,
    ):
        container_id = await _container(cri)
        actions: dict[str, dict[str, Any]] = {
            "exec": {"exec": ExecAction(command=("true",))},
            "http": {"http_get": HTTPGetAction(path="/healthz", port=ports["http"])},
            "tcp": {"tcp_socket": TCPSocketAction(port=ports["http"])},
            "grpc": {"grpc": GRPCAction(port=ports["grpc"])},
        }
        yield _Bed(actions, cri, container_id)


async def _container(cri: CRIClient) -> str:
    image = v1.ImageSpec(image=SIMULATED_IMAGE)
    await cri.pull_image(image)
    sandbox = v1.PodSandboxConfig(
        metadata=v1.PodSandboxMetadata(name="probed", uid="uid-probed", namespace="default")
    )
    container = v1.ContainerConfig(metadata=v1.ContainerMetadata(name="main"), image=image)
    sandbox_id = await cri.run_pod_sandbox(sandbox)
    container_id = await cri.create_container(sandbox_id, container, sandbox)
    await cri.start_container(container_id)
    return container_id


@asynccontextmanager
async def _servers(base: Path) -> AsyncIterator[dict[str, int]]:
    command = [sys.executable, "-m", "nodeagent.bench.probe_targets"]
    with (base / "targets.log").open("ab") as log:
        process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    async with ended(process):
        assert process.stdout is not None
        try:
            with anyio.fail_after(_START_TIMEOUT):
                ports = json.loads(await TextReceiveStream(process.stdout).receive())
        except (TimeoutError, anyio.EndOfStream) as error:
            raise BenchError("the servers for probes do not start") from error
        yield ports


class _Silent:
    """Nobody hears of failures; they are counted by the metrics."""

    def event(self, pod: Pod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        """Do nothing."""


async def _measure(
    bed: _Bed, kinds: Sequence[str], pods: int, probes: int, period: int, seconds: float
) -> Figures:
    registry = CollectorRegistry()
    wanted = [_pod(bed, n, kinds, probes, period) for n in range(pods)]
    statuses = {PodUID(pod.metadata.uid): _status(pod, bed.container_id) for pod in wanted}
    channels = {kind: Channel[ProbeUpdate](kind.value, 20) for kind in ProbeKind}
    manager = ProbeManager(
        make_prober(bed.cri, _Silent()),
        statuses.get,
        channels,
        journal=Journal(16),
        metrics=ProbeMetrics(registry),
    )
    late: list[float] = []
    fds_before = _fds()
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        for channel in channels.values():
            tasks.start_soon(_drain, channel)
        for pod in wanted:
            manager.add_pod(pod)
        await anyio.sleep(_WARM_UP_PERIODS * period)
        # A loop may keep its time for as long as it is busy; how late it is, the clock says.
        manager.on_probe = lambda due: late.append((time.monotonic() - due) * 1e3)
        fds, cpu, began = _fds(), time.process_time(), time.monotonic()
        await anyio.sleep(seconds)
        cpu, took = time.process_time() - cpu, time.monotonic() - began
        manager.on_probe = None
        fds_end = _fds()
        tasks.cancel_scope.cancel()
    fds_left = await _fds_at_rest(fds_before)
    for channel in channels.values():
        channel.dispose()
    if not late:
        raise BenchError("no probe was made")
    return {
        "probes_per_s": round(len(late) / took, 1),
        "cpu_us_per_probe": round(cpu / len(late) * 1e6, 1),
        "cpu_percent": round(cpu / took * 100, 2),
        **spread("late_ms", late, digits=2),
        "failed": _failed(registry),
        "fds_begin": fds,
        "fds_end": fds_end,
        "fds_left": fds_left - fds_before,
    }


def _pod(bed: _Bed, number: int, kinds: Sequence[str], probes: int, period: int) -> Pod:
    """A pod whose containers have a readiness and a liveness probe each, until there are enough."""
    checks = [
        Probe(
            **bed.actions[kinds[(number * probes + n) % len(kinds)]],
            period_seconds=period,
            timeout_seconds=1,
            success_threshold=1,
            failure_threshold=3,
        )
        for n in range(probes)
    ]
    containers = tuple(
        Container(
            name=f"c{n}",
            readiness_probe=checks[n],
            liveness_probe=checks[n + 1] if n + 1 < probes else None,
        )
        for n in range(0, probes, 2)
    )
    metadata = ObjectMeta(name=f"pod{number}", namespace="default", uid=f"uid-{number}")
    return Pod(metadata=metadata, spec=PodSpec(containers=containers))


def _status(pod: Pod, container_id: str) -> PodStatus:
    running = ContainerState(running=ContainerStateRunning(started_at=datetime.now(UTC)))
    return PodStatus(
        phase="Running",
        pod_ip="127.0.0.1",
        container_statuses=tuple(
            ContainerStatus(
                name=container.name,
                container_id=f"bench://{container_id}",
                state=running,
                started=True,
            )
            for container in pod.spec.containers
        ),
    )


async def _drain(channel: Channel[ProbeUpdate]) -> None:
    async for _ in channel:
        pass


async def _fds_at_rest(before: int) -> int:
    """Descriptors once the loop has had a moment to close what was cut."""
    for _ in range(100):
        if _fds() <= before:
            break
        await anyio.sleep(0.01)
    return _fds()


def _fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _failed(registry: CollectorRegistry) -> int:
    return sum(
        int(sample.value)
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "prober_probe_total" and sample.labels["result"] != "successful"
    )
