"""What it costs to decide what a pod needs: ``compute_pod_actions`` in several situations."""

from __future__ import annotations

import gc
import time
from typing import Final

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec, Probe
from nodeagent.bench.figures import Figures, percentile
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    ProbeResult,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.model.probes import NO_RESULTS, ProbeResults
from nodeagent.runtime.actions import compute_pod_actions
from nodeagent.runtime.hash import container_hash

_UID: Final = PodUID("uid")
_WARM_UP: Final = 200
_SANDBOX: Final = SandboxRuntimeStatus(
    SandboxID("s0"), 0, SandboxState.READY, ips=("10.0.0.1",), has_network_status=True
)


def run(containers: int = 5, repeats: int = 5000) -> Figures:
    """Time each situation; all times are in microseconds for one pod.

    Args:
        containers: how many the pod has, at least 1.
        repeats: how often each situation is timed, at least 1.

    Returns:
        For each situation ``p50_us`` and ``p99_us``; ``median_us``, the largest of the medians,
        and ``worst_situation``, whose it is.

    Raises:
        ValueError: there is nothing to measure.
    """
    if containers < 1 or repeats < 1:
        msg = f"{containers} containers, {repeats} times: both must be at least 1"
        raise ValueError(msg)
    rows = {
        name: _timed(pod, status, probes, repeats)
        for name, (pod, status, probes) in _situations(containers).items()
    }
    worst = max(rows, key=lambda name: rows[name]["p50_us"])
    return {
        "containers": containers,
        "situations": rows,
        "worst_situation": worst,
        "median_us": rows[worst]["p50_us"],
    }


def _timed(pod: Pod, status: PodRuntimeStatus, probes: ProbeResults, repeats: int) -> Figures:
    for _ in range(_WARM_UP):
        compute_pod_actions(pod, status, probes=probes)
    taken = []
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            began = time.perf_counter_ns()
            compute_pod_actions(pod, status, probes=probes)
            taken.append((time.perf_counter_ns() - began) / 1000)
    finally:
        if collects:
            gc.enable()
    return {
        "p50_us": round(percentile(taken, 0.5), 2),
        "p99_us": round(percentile(taken, 0.99), 2),
    }


def _situations(count: int) -> dict[str, tuple[Pod, PodRuntimeStatus, ProbeResults]]:
    names = [f"c{number}" for number in range(count)]
    plain = _pod([_container(name) for name in names])
    running, exited = ContainerState.RUNNING, ContainerState.EXITED
    up = [_record(name, running) for name in names]
    crashed = [_record(name, exited, 1) for name in names]
    older = [_record(name, exited, 1, attempt=0) for name in names]
    failed = {f"{name}-1": ProbeResult.FAILURE for name in names}
    with_init = _pod(
        [_container(name) for name in names],
        [
            _container(f"i{number}", restart_policy="Always" if number % 2 else None)
            for number in range(count)
        ],
    )
    inits = [_record(f"i{n}", running if n % 2 else exited) for n in range(count)]
    return {
        "new": (plain, PodRuntimeStatus(_UID), NO_RESULTS),
        "at_rest": (plain, _status(*up), NO_RESULTS),
        "at_rest_with_init": (with_init, _status(*up, *inits), NO_RESULTS),
        "all_crashed": (plain, _status(*crashed, *older), NO_RESULTS),
        "all_probes_failed": (plain, _status(*up, *older), ProbeResults(liveness=failed)),
        "init_goes_on": (with_init, _status(*inits[: count // 2]), NO_RESULTS),
    }


def _container(name: str, restart_policy: str | None = None) -> Container:
    return Container(
        name=name, image="example.test/app:1", liveness_probe=Probe(), restart_policy=restart_policy
    )


def _pod(containers: list[Container], inits: list[Container] | None = None) -> Pod:
    spec = PodSpec(
        containers=tuple(containers), init_containers=tuple(inits or ()), restart_policy="Always"
    )
    return Pod(metadata=ObjectMeta(name="web", namespace="default", uid=_UID), spec=spec)


def _record(
    name: str, state: ContainerState, exit_code: int = 0, attempt: int = 1
) -> ContainerRuntimeStatus:
    return ContainerRuntimeStatus(
        ContainerID(f"{name}-{attempt}"),
        name,
        state,
        sandbox_id=_SANDBOX.id,
        attempt=attempt,
        exit_code=exit_code,
        hash=container_hash(name, "example.test/app:1"),
    )


def _status(*records: ContainerRuntimeStatus) -> PodRuntimeStatus:
    return PodRuntimeStatus(_UID, "web", "default", _SANDBOX.ips, (_SANDBOX,), records)
