"""Garbage on containerd: what the agent leaves, and what the command takes."""

import json
import re
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


def _gc_text(agent: Agent, lab: Lab, *flags: str) -> str:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nodeagent", "gc"),
            f"--container-runtime-endpoint={lab.endpoint}",
            f"--root-dir={agent.root_dir}",
            f"--pod-logs-dir={agent.logs_dir}",
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


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


#: The disk of a machine is always used by more than one percent and less than all.
_FULL = ("--image-gc-high-threshold=1", "--image-gc-low-threshold=0")
_AT_ONCE = "--minimum-image-ttl-duration=0s"


def test_a_disk_that_is_too_full_costs_unused_images(
    lab: Lab, agent: Agent, all_images: None
) -> None:
    agent.put("web", pod("web"))
    agent.put("done", pod("done", container(image=images.WITH_ENV, command=("true",))))
    web = agent.wait_pod("web")
    agent.wait_pod("done", lambda it: it.container().restarts >= 1, what="a restart")
    assert agent.terminate() == 0
    agent.start(*_FULL, _AT_ONCE)
    until("unused images are gone", lambda: not lab.cri.has_image(images.BUSYBOX_2))
    for used in (images.BUSYBOX, images.WITH_ENV, images.PAUSE):
        assert lab.cri.has_image(used), used
    said = agent.wait_log("image_removed", images.BUSYBOX_2)
    assert "never in use" in said
    agent.wait_log("FreeDiskSpaceFailed", "Failed to garbage collect required amount of images.")
    agent.pod_stays("web", web, seconds=2)
    metrics = agent.ask("/metrics")
    (count,) = re.findall(
        r'^kubelet_image_garbage_collected_total\{reason="space"\} (\S+)$', metrics, re.MULTILINE
    )
    assert float(count) >= 1


def test_images_of_a_young_age_stay_however_full_the_disk(lab: Lab, agent: Agent) -> None:
    assert agent.terminate() == 0
    agent.start(*_FULL)
    agent.wait_log("FreeDiskSpaceFailed", "only found 0 bytes eligible to free")
    assert all(lab.cri.has_image(image.name) for image in lab.images)


def test_the_command_does_what_its_dry_run_says(lab: Lab, agent: Agent, all_images: None) -> None:
    keeping = "--maximum-dead-containers-per-container=3"
    assert agent.terminate() == 0
    agent.start(keeping)
    agent.put("web", pod("web", container(command=("sh", "-c", "exit 1"))))
    agent.wait_pod("web", lambda it: it.container().restarts >= 2, what="two restarts")
    until("three records", lambda: len(lab.cri.containers(full_name("web"))) == 3)
    agent.kill9()
    until("all have ended", lambda: not lab.cri.running(full_name("web")))
    newest, *older = [c.id for c in lab.cri.containers(full_name("web"))]
    text = _gc_text(agent, lab, "--dry-run", *_FULL)
    for cid in older:
        line = rf"^container  {cid[:13]}  default/{full_name('web')} main attempt \d: "
        assert re.search(line + r"of its name the newest 1 are kept$", text, re.MULTILINE), text
    assert newest[:13] not in text
    assert re.search(
        rf"^image      {images.BUSYBOX_2}  \d+ bytes: never in use$", text, re.MULTILINE
    )
    *_, disk, sum_ = text.splitlines()
    assert re.search(r"is used by \d+ %, 1 % or more: \d+ bytes of images have to go$", disk)
    assert sum_.startswith("2 containers, 0 sandboxes, 0 log directories, ")
    assert sum_.endswith(" would go; nothing was removed")
    assert len(lab.cri.containers(full_name("web"))) == 3
    assert lab.cri.has_image(images.BUSYBOX_2)
    _, planned = _gc(agent, lab, "--dry-run", *_FULL)
    code, told = _gc(agent, lab, *_FULL)
    assert (code, told["failures"]) == (0, [])
    assert {c["id"] for c in told["containers"]} == set(older)
    assert [i["id"] for i in told["images"]] == [i["id"] for i in planned["images"]]
    assert [c.id for c in lab.cri.containers(full_name("web"))] == [newest]
    assert not lab.cri.has_image(images.BUSYBOX_2)
    assert lab.cri.has_image(images.PAUSE)


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
