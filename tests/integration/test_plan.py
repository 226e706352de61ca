"""What ``nodeagent plan`` foretells happens: docs/configuration.md, "Plan"."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import to_thread
from command import Command, command

from nodeagent.cli.plan import Foretold, foretell

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

POD = """apiVersion: v1
kind: Pod
metadata: {name: %s, uid: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: "%s", command: ["/bin/sh", "-c", "exec sleep 1000"]}
  - {name: side, image: "busybox:1", command: ["/bin/sh", "-c", "exec sleep 1000"]}
"""


def steps(told: Foretold) -> dict[str, dict[str, str]]:
    return {
        plan.name: {step.name: step.step.value for step in plan.containers} for plan in told.pods
    }


async def ids(agent: Command, pod: str) -> dict[str, str]:
    """Ids of the pod's containers that run."""
    found = {}
    for name in ("main", "side"):
        status = await agent.container(pod, name)
        if "running" in status.get("state", {}):
            found[name] = status["containerID"]
    return found


@pytest.mark.parametrize("asked", ["root", "agent"])
async def test_what_is_foretold_happens(asked: str, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    async with command(tmp_path) as agent:
        agent.put("web.yaml", POD % ("web", "web-1", "busybox:1"))
        agent.put("old.yaml", POD % ("old", "old-1", "busybox:1"))
        await agent.start()
        await agent.until(lambda: both_run(agent, "web-n1"))
        await agent.until(lambda: both_run(agent, "old-n1"))
        before = await ids(agent, "web-n1")
        (new / "web.yaml").write_text(POD % ("web", "web-1", "busybox:2"))
        (new / "fresh.yaml").write_text(POD % ("fresh", "fresh-1", "busybox:1"))

        url = f"http://127.0.0.1:{agent.read_only}" if asked == "agent" else ""
        root = tmp_path / ("root" if asked == "root" else "nowhere")
        told = await to_thread.run_sync(lambda: foretell([new], root, agent_url=url))

        assert told.notes == ()
        assert steps(told) == {
            "web-n1": {"main": "restart", "side": "run on"},
            "fresh-n1": {"main": "start", "side": "start"},
            "old-n1": {"main": "stop", "side": "stop"},
        }
        (agent.manifests / "old.yaml").unlink()
        for file in new.iterdir():
            agent.put(file.name, file.read_text())

        async def done() -> bool:
            web, pods = await ids(agent, "web-n1"), await agent.pods()
            changed = web.get("main", before["main"]) != before["main"]
            return changed and "old-n1" not in pods and len(await ids(agent, "fresh-n1")) == 2

        await agent.until(done)
        assert (await ids(agent, "web-n1"))["side"] == before["side"]
        told = await to_thread.run_sync(lambda: foretell([new], root, agent_url=url))
        assert not told.changes


async def both_run(agent: Command, pod: str) -> bool:
    return len(await ids(agent, pod)) == 2
