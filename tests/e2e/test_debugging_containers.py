"""Ephemeral containers on containerd.

Manifests cannot have them, and the API server of the laboratory does not know them yet: an agent
in this process gets its pod from memory.
"""

from pathlib import Path

import anyio
import pytest
from tests.e2e.lab import images
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import WAITING

from nodeagent import AgentConfig, NodeAgent
from nodeagent.api import ContainerStatus, EphemeralContainer, Pod
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(240)]

_MAIN = make_container(image=images.BUSYBOX, command=WAITING)


def _pod(script: str = "") -> Pod:
    if not script:
        return make_pod("web", _MAIN)
    look = EphemeralContainer(
        name="look",
        image=images.BUSYBOX,
        image_pull_policy="IfNotPresent",
        command=("sh", "-c", script),
        target_container_name="main",
    )
    return make_pod("web", _MAIN, ephemeral_containers=(look,))


def _status(agent: NodeAgent, name: str) -> ContainerStatus:
    for pod in agent.pods():
        status = pod.status
        for found in (*status.container_statuses, *status.ephemeral_container_statuses):
            if found.name == name:
                return found
    return ContainerStatus()


async def test_one_sees_the_processes_of_its_target_and_runs_once(lab: Lab, tmp_path: Path) -> None:
    config = AgentConfig(
        container_runtime_endpoint=lab.endpoint,
        root_dir=tmp_path / "kubelet",
        pod_logs_dir=tmp_path / "logs",
        node_name="debug1",
    )
    source = MemorySource(_pod())
    async with NodeAgent(config, sources=[source]) as agent:
        with anyio.fail_after(120), agent.journal.follower(10_000) as records:
            while not _status(agent, "main").ready:
                await records.receive()
            main = _status(agent, "main")
            # The first process that it sees is not its own.
            source.set(_pod("test $$ != 1 && test -d /proc/1 && exit 7"))
            while (end := _status(agent, "look").state.terminated) is None:
                await records.receive()
        look = _status(agent, "look")
        assert (end.exit_code, end.reason) == (7, "Error")
        assert (look.restart_count, look.ready) == (0, False)
        after = _status(agent, "main")
        assert (after.container_id, after.restart_count) == (main.container_id, 0)
        made = await anyio.to_thread.run_sync(lab.cri.containers, "web")
        assert len(made) == 2
