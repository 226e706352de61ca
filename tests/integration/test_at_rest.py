"""What a running agent has loaded: libraries load only in the command that needs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

HEAVY = {
    "aiohttp",
    "click",
    "rich",
    "cryptography",
    "kubernetes_asyncio",
    "kubernetes",
    "pytest",
    "hypothesis",
}

EMBEDDED = """
import asyncio, json, socket, sys
from nodeagent import AgentConfig, NodeAgent

async def main(home):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = AgentConfig(
        static_pod_path=home + "/m", container_runtime_endpoint="embedded:simulated",
        root_dir=home + "/root", pod_logs_dir=home + "/logs", node_name="n1", healthz_port=port,
    )
    async with NodeAgent(config) as agent:
        await agent.ready()
        print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))

asyncio.run(main(sys.argv[1]))
"""


async def loaded(*command: str) -> set[str]:
    with anyio.fail_after(60):
        done = await anyio.run_process([sys.executable, *command], stderr=subprocess.PIPE)
    return set(json.loads(done.stdout))


async def test_an_embedded_agent_at_rest_has_loaded_no_command_line_or_cluster_library(
    tmp_path: Path,
) -> None:
    found = await loaded("-c", EMBEDDED, str(tmp_path))
    assert "nodeagent" in found
    assert found & HEAVY == set()


async def test_the_command_loads_its_own_library_and_no_other(tmp_path: Path) -> None:
    code = (
        "import json, sys; from nodeagent.cli import app; app.invoke(['run', '--help'])\n"
        "sys.stdout = sys.__stdout__\n"
        "print(); print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    )
    with anyio.fail_after(60):
        done = await anyio.run_process([sys.executable, "-c", code])
    found = set(json.loads(done.stdout.decode().splitlines()[-1]))
    assert found & HEAVY == {"click"}
