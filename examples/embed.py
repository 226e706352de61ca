"""Pod lifecycle inside your own asyncio application.

Runs an agent for a directory of manifests on the embedded runtime, prints what happens to the
pods, and ends after ten seconds (or Ctrl-C). Run it with: python examples/embed.py
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from pathlib import Path

from nodeagent import AgentConfig, NodeAgent

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: embedded-hello}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: hello
      image: busybox:1.36
      command: ["/bin/sh", "-c", "echo hello; sleep 2; exit 1"]
"""


async def main(seconds: float = 10.0) -> None:
    """Run the agent and follow its journal."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        manifests = home / "manifests"
        manifests.mkdir()
        (manifests / "hello.yaml").write_text(MANIFEST)
        config = AgentConfig(
            static_pod_path=manifests,
            container_runtime_endpoint="embedded",
            root_dir=home / "state",
            pod_logs_dir=home / "logs",
            stop_pods_on_exit=True,
        )
        async with NodeAgent(config) as agent:
            await agent.ready()
            try:
                async with (
                    asyncio.timeout(seconds),
                    aclosing(agent.journal.follow()) as records,
                ):
                    async for record in records:
                        if record.component in ("event", "status"):
                            print(f"{record.what:<12} {record.why}")
            except TimeoutError:
                pass
            for pod in agent.pods():
                print(f"{pod.metadata.name}: {pod.status.phase}")


if __name__ == "__main__":
    asyncio.run(main())
