"""Garbage on containerd: what the agent leaves, and what the command takes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _gc(agent: Agent, lab: Lab, *flags: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nodeagent", "gc", "--json"),
            f"--container-runtime-endpoint={lab.endpoint}",
            f"--root-dir={agent.root_dir}",
            f"--pod-logs-dir={agent.logs_dir}",
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, told


@pytest.fixture
def all_images(lab: Lab) -> Iterator[None]:
    """The laboratory's images are there again after the test."""
    yield
    lab.containerd.import_images(lab.images)
    until("the images in CRI", lambda: all(lab.cri.has_image(i.name) for i in lab.images))


def test_of_a_container_that_dies_again_and_again_two_records_stay(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container(command=("sh", "-c", "exit 1"))))
    agent.wait_pod("web", lambda it: it.container().restarts >= 2, what="two restarts")
    until("two records", lambda: len(lab.cri.containers(full_name("web"))) == 1, timeout=90)
    web = agent.wait_pod("web", lambda it: it.container().restarts >= 2, what="two restarts")
    logs = list(agent.container_log(web).parent.glob("*.log"))
    assert len(logs) <= 2


def test_all_of_a_pod_goes_with_its_manifest(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web"))
    web = agent.wait_pod("web")
    logs = agent.container_log(web).parent.parent
    agent.remove("web")
    agent.wait_gone("web")
    until("no sandbox", lambda: not lab.cri.sandboxes(full_name("web")), timeout=150)
    until("no logs", lambda: not logs.exists(), timeout=90)
    assert not (agent.root_dir / "pods" / web.uid).exists()


def test_the_command_takes_unused_images_and_leaves_what_is_needed(
    lab: Lab, agent: Agent, all_images: None
) -> None:
    agent.put("web", pod("web"))
    web = agent.wait_pod("web")
    code, told = _gc(agent, lab, "--dry-run")
    assert (code, told["containers"], told["failures"]) == (0, [], [])
    assert "the file system of images" in told["notes"][0]
    code, told = _gc(agent, lab, "--all-images", "--dry-run")
    named = {image["name"] for image in told["images"]}
    assert images.BUSYBOX not in named
    assert images.PAUSE not in named
    assert {images.BUSYBOX_2, images.WITH_ENV} <= named
    assert lab.cri.has_image(images.BUSYBOX_2)
    code, told = _gc(agent, lab, "--all-images")
    assert (code, told["failures"]) == (0, [])
    assert not lab.cri.has_image(images.BUSYBOX_2)
    assert lab.cri.has_image(images.PAUSE)
    agent.pod_stays("web", web, seconds=2)
    agent.put("second", pod("second"))
    agent.wait_pod("second")


def test_all_is_for_a_machine_without_an_agent(lab: Lab, agent: Agent, all_images: None) -> None:
    agent.put("web", pod("web", container(command=("true",)), restartPolicy="Never"))
    agent.wait_pod("web", lambda it: it.phase == "Succeeded", what="Succeeded")
    refused = subprocess.run(
        [
            *(sys.executable, "-m", "nodeagent", "gc", "--all"),
            f"--container-runtime-endpoint={lab.endpoint}",
            f"--root-dir={agent.root_dir}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "stop it before --all" in refused.stderr
    assert lab.cri.containers(full_name("web"))
    agent.terminate()
    code, told = _gc(agent, lab, "--all")
    assert (code, told["failures"]) == (0, [])
    assert [c["name"] for c in told["containers"]] == ["main"]
    assert not lab.cri.containers(full_name("web"))
    assert not lab.cri.sandboxes(full_name("web"))
    assert list(agent.logs_dir.iterdir()) == []
