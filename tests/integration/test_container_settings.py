"""Settings that say how containers are limited and restarted, in a whole ring."""

from __future__ import annotations

from pathlib import Path

import pytest
from ring import phase, ring

from nodeagent.api import Quantity, ResourceRequirements
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio


async def test_they_reach_the_runtime(tmp_path: Path) -> None:
    """docs/behaviour/runtime.md, "Linux resources"."""
    limits = ResourceRequirements(limits={"cpu": Quantity("500m")})
    pod = make_pod("web", make_container(resources=limits))
    async with ring(tmp_path, pod, cpu_cfs_quota_period=0.02, single_process_oom_kill=True) as node:
        await node.running("web")
        (made,) = node.containers("web", running=True)
        assert made.config.linux is not None
        found = made.config.linux.resources
        assert found is not None
        assert (found.cpu_period, found.cpu_quota) == (20_000, 10_000)
        assert "memory.oom.group" not in found.unified


async def test_the_longest_back_off_can_be_set(tmp_path: Path) -> None:
    """docs/behaviour/runtime.md, "Crash back-off"."""
    backend = SimulatedBackend({"main": Script(exits=[(0.1, 1)], repeat=True)})
    async with ring(
        tmp_path, make_pod("web"), backend=backend, max_container_restart_period=15.0
    ) as node:
        told: list[str] = []

        def waits_long() -> bool:
            waiting = node.status("web").state.waiting
            if waiting is not None and waiting.reason == "CrashLoopBackOff":
                told.append(waiting.message.split()[1])
            return node.status("web").restart_count >= 4

        await node.until(lambda: phase(node.pod("web")) and waits_long())
        assert list(dict.fromkeys(told)) == ["10s", "15s"]
