"""Many faults at once, in short: afterwards all is as it is wanted, and nothing is left behind."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest
from chaos import Chaos, new_pod
from ring import Ring, agent_on

from nodeagent.embedded import SimulatedBackend, serve_faulty
from nodeagent.embedded.records import RunState
from nodeagent.testing import MemorySource

pytestmark = pytest.mark.anyio


def wrong(node: Ring, chaos: Chaos) -> dict[str, str]:
    """Pods that are not as they are wanted, and how they are instead."""
    found = {}
    for pod in node.agent.pods():
        uid, containers = pod.metadata.uid, chaos.wanted[pod.metadata.uid].spec.containers
        ready = {s.name for s in pod.status.container_statuses if s.ready}
        images = {
            r.name: r.config.image.image if r.config.image else ""
            for r in node.runtime.core.state.containers.values()
            if r.pod_uid == uid and r.state is RunState.RUNNING
        }
        if ready != {c.name for c in containers} or images.keys() != ready:
            found[uid] = f"{pod.status.phase} ready={ready} running={images} {pod.status}"
    alive = {r.pod_uid for r in node.containers(running=True)}
    found.update(dict.fromkeys(alive - chaos.wanted.keys(), "runs and is not wanted"))
    found.update(dict.fromkeys(chaos.wanted.keys() - alive, "is missing"))
    return found


def explain(node: Ring, chaos: Chaos, bad: dict[str, str]) -> str:
    """What went wrong, what was done to the node, and what the agent did with these pods."""
    lines = [f"at {anyio.current_time():.1f}", *chaos.story]
    for uid, text in bad.items():
        lines.append(f"--- {uid}: {text}")
        for record in node.agent.journal.select(uid)[-40:]:
            lines.append(f"{record.at:.1f} {record.component} {record.what} {record.why}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_minute_of_faults_all_is_well_within_five_seconds(
    seed: int, tmp_path: Path
) -> None:
    backend = SimulatedBackend(latency={"RunPodSandbox": 0.05, "StartContainer": 0.02})
    wanted = {pod.metadata.uid: pod for pod in map(new_pod, range(6))}
    source = MemorySource(*wanted.values())
    async with (
        serve_faulty(tmp_path / "cri.sock", backend) as server,
        agent_on(server.embedded, f"unix://{server.socket}", tmp_path, source) as node,
        anyio.create_task_group() as tasks,
    ):
        chaos = Chaos(server, backend, source, tasks, random.Random(seed), wanted)
        await chaos.reign(60.0)
        with anyio.move_on_after(5.0):
            while wrong(node, chaos):
                await anyio.sleep(0.1)
        assert not (bad := wrong(node, chaos)), explain(node, chaos, bad)
        names = [(r.pod_uid, r.name) for r in node.containers(running=True)]
        assert len(names) == len(set(names))
