"""The process backend for users without privileges.

By user namespaces it isolates containers as root does; where the kernel does not allow them, the
same tests check that what cannot be honoured is refused.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import nobody
import pytest
from command import Command, command, free_port

from nodeagent import AgentConfig, NodeAgent
from nodeagent.embedded import open_embedded
from nodeagent.embedded.process import ProcessBackend

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples/manifests/web.yaml"


@pytest.fixture
def home() -> Iterator[Path]:
    with nobody.home() as path:
        yield path


def check_as_nobody(home: Path, name: str, *prefix: str) -> None:
    """Run a file of tests as somebody without privileges."""
    done = subprocess.run(
        [
            *nobody.prefix(), *prefix, sys.executable, "-m", "pytest", "-q", "--color=no",
            f"--basetemp={home / 'pytest'}", f"tests/integration/test_embedded_{name}.py",
        ],
        cwd=REPOSITORY,
        env={**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["isolation", "process", "restart"])
def test_what_holds_for_root_holds_for_others(home: Path, name: str) -> None:
    check_as_nobody(home, name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["isolation", "restart"])
def test_without_user_namespaces_the_rest_holds_and_mounts_are_refused(
    home: Path, name: str
) -> None:
    script = REPOSITORY / "tests/integration/without_namespaces.py"
    check_as_nobody(home, name, sys.executable, str(script))


CROWDED_SRV = """
mount -t tmpfs srv /srv && cd /srv &&
mkdir -m 777 crowd crowd/a crowd/b && mkdir -m 1777 temporary && mkdir temporary/a &&
for number in $(seq 70); do mkdir crowd/$number temporary/$number; done &&
mount -t tmpfs -o mode=777 a crowd/a && mount -t tmpfs a temporary/a &&
cd "$0" && exec "$@"
"""
LIST_SRV = """
import sys
from pathlib import Path
import anyio
from embedded_lab import lab, shell
from nodeagent.proto.runtime import v1

async def main(home):
    line = (
        "cd /srv; ls crowd | wc -l; touch crowd/x crowd/a/x 2>/dev/null || echo read-only;"
        " ls temporary | wc -l; touch temporary/x && ls temporary; ls crowd/b"
    )
    volume = v1.Mount(host_path=str(home / "data"), container_path="/srv/crowd/b/volume")
    for name, mounts in (("without", []), ("with", [volume])):
        async with lab(home / name) as one:
            if one.means == "user":
                container_id = await one.start(*shell(line), mounts=mounts)
                await one.ended(container_id)
                print(name, *one.log(container_id), *one.log(container_id, "stderr"))

anyio.run(main, Path(sys.argv[1]))
"""


def test_a_crowded_directory_with_mounts_in_it_is_read_only_or_empty(home: Path) -> None:
    """An overlay cannot show one, and it has too many parts: ``launcher/user_root.py``."""
    own_mounts = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "-Urm")
    if subprocess.run([*own_mounts, "true"], check=False, capture_output=True).returncode:
        return  # where nobody can mount anything, no mount is in the way
    done = subprocess.run(
        [
            *own_mounts, "sh", "-c", CROWDED_SRV, str(Path(__file__).parent),
            *nobody.prefix(), sys.executable, "-c", LIST_SRV, str(home),
        ],
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() in (
        "without 72 read-only 0 x\nwith 72 0 x volume\n",
        "",  # nothing is isolated here
    )


@pytest.mark.anyio
@pytest.mark.realtime
async def test_the_web_example_serves_its_page_or_says_why_not(home: Path) -> None:
    port = free_port()
    async with command(home, nobody.prefix()) as agent:
        nobody.give_away(agent.manifests)
        agent.put("web.yaml", EXAMPLE.read_text().replace("8088", str(port)))
        await agent.start("--stop-pods-on-exit")

        async def settled() -> bool:
            text = (home / "agent.log").read_text()
            return "containers_isolated" in text or "containers_not_isolated" in text

        await agent.until(settled)
        if "containers_isolated" not in (home / "agent.log").read_text():
            await refused(agent)
            return
        page = await agent.until(lambda: agent.get(port, "/index.html"))
        assert page.split()
        await agent.runs("web-n1")  # the page may be there before the agent knows
        first = await agent.container("web-n1", "writer")

        await agent.end(signal.SIGKILL)
        await agent.start("--stop-pods-on-exit")
        await agent.runs("web-n1")
        again = await agent.container("web-n1", "writer")
        assert (again["containerID"], again["restartCount"]) == (first["containerID"], 0)
        assert await agent.end(signal.SIGTERM) == 0
        assert await agent.get(port, "/") == ""


async def refused(agent: Command) -> None:
    async def waits() -> dict[str, Any]:
        status = await agent.container("web-n1", "writer")
        found: dict[str, Any] = status.get("state", {}).get("waiting", {})
        return found if found.get("reason") == "CreateContainerError" else {}

    waiting = await agent.until(waits)
    assert "on /pages: containers are plain processes here" in waiting["message"]
    assert "run as root, or enable unprivileged user namespaces" in waiting["message"]


@pytest.mark.anyio
@pytest.mark.realtime
async def test_a_pod_whose_volumes_cannot_be_mounted_waits_and_says_so(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    backend = ProcessBackend(tmp_path / "state", isolate=False)
    config = AgentConfig(
        static_pod_path=tmp_path,
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        node_name="n1",
        node_ip="127.0.0.1",
    )
    async with (
        open_embedded(backend) as embedded,
        NodeAgent(config, runtime=embedded.runtime, images=embedded.images) as agent,
    ):
        with anyio.fail_after(40), agent.journal.follower(10_000) as records:
            while not (found := _waiting(agent)):
                await records.receive()
        assert all("on /pages: containers are plain" in message for message in found)
        assert await embedded.runtime.list_containers() == []


def _waiting(agent: NodeAgent) -> list[str]:
    """What the containers of the only pod wait for, once none of them can be created."""
    statuses = [one for pod in agent.pods() for one in pod.status.container_statuses]
    states = [one.state.waiting for one in statuses]
    found = [one.message for one in states if one and one.reason == "CreateContainerError"]
    return found if len(found) == 2 else []
