"""Pulls that work, pulls that cannot, and what the pull policies mean."""

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _fresh_image(lab: Lab, name: str) -> images.Image:
    """An image with one layer that no other image has, so that a pull really fetches it."""
    layer = images.LayerBuilder()
    layer.file("etc/image-version", f"{name}\n".encode())
    return images.make_image(name, [lab.image(images.BUSYBOX).layers[0], layer.done()], {})


def _pull_fails(view: PodView) -> bool:
    return view.container().reason in {"ErrImagePull", "ImagePullBackOff"}


def test_an_absent_image_is_pulled_once_and_then_present(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/once:1", _fresh_image(lab, "once"))
    agent.put("web", pod("web", container(image=reference)))
    web = agent.wait_pod("web")
    version = lab.cri.exec(web.container().id, "cat", "/etc/image-version").stdout
    assert version == "once\n"
    asked = lab.registry.asked["e2e/once:1"]
    agent.put("second", pod("second", container(image=reference)))
    agent.wait_pod("second")
    assert lab.registry.asked["e2e/once:1"] == asked


def test_policy_always_asks_the_registry_for_every_start(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/always:1", _fresh_image(lab, "always"))
    agent.put("web", pod("web", container(image=reference, imagePullPolicy="Always")))
    agent.wait_pod("web")
    asked = lab.registry.asked["e2e/always:1"]
    agent.put("second", pod("second", container(image=reference, imagePullPolicy="Always")))
    agent.wait_pod("second")
    assert lab.registry.asked["e2e/always:1"] > asked


def test_policy_never_starts_nothing_that_is_not_there(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/never:1", _fresh_image(lab, "never"))
    agent.put("web", pod("web", container(image=reference, imagePullPolicy="Never")))
    agent.wait_pod(
        "web", lambda it: it.container().reason == "ErrImageNeverPull", what="ErrImageNeverPull"
    )
    assert lab.registry.asked["e2e/never:1"] == 0


def test_a_wrong_image_is_reported_and_backs_off_until_the_manifest_is_corrected(
    lab: Lab, agent: Agent
) -> None:
    agent.put("web", pod("web", container("fine"), container(image=images.UNREACHABLE)))
    first = agent.wait_pod("web", _pull_fails, what="a failed pull")
    assert first.phase == "Pending"
    backing_off = agent.wait_pod(
        "web", lambda it: it.container().reason == "ImagePullBackOff", what="ImagePullBackOff"
    )
    assert images.UNREACHABLE in backing_off.container().message
    agent.wait_pod("web", lambda it: it.container("fine").state == "running", what="fine runs")
    agent.put("web", pod("web", container("fine"), container()))
    agent.wait_pod("web")


def test_every_failure_of_a_pull_says_why(agent: Agent) -> None:
    agent.put("web", pod("web", container(image=images.UNREACHABLE)))
    agent.wait_journal("web", '"ContainerStartFailed"', '"ErrImagePull: ', "connection refused")
    failed = agent.wait_pod("web", _pull_fails, what="a failed pull")
    assert "connection refused" in failed.container().message


def test_a_pull_is_tried_again_until_the_image_appears(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.reference("e2e/late:1")
    agent.put("web", pod("web", container(image=reference)))
    agent.wait_pod("web", _pull_fails, what="a failed pull")
    lab.registry.push("e2e/late:1", _fresh_image(lab, "late"))
    agent.wait_pod("web", timeout=90)


def test_a_name_that_is_no_image_name_is_called_that(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container(image="Not/A/Valid/Name::")))
    agent.wait_pod(
        "web", lambda it: it.container().reason == "InvalidImageName", what="InvalidImageName"
    )
    until("nothing runs", lambda: not lab.cri.running(full_name("web")))
