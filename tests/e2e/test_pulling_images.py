"""Pulls that work, pulls that cannot, and what the pull policies mean."""

import itertools
import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


_NUMBERS = itertools.count()


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


# -- registries that are not as they should be ------------------------------------------------


@pytest.fixture
def private(lab: Lab) -> str:
    """An image of a repository that only one login may see, and that no other test has pulled."""
    name = f"private{next(_NUMBERS)}"
    lab.registry.demand(f"e2e/{name}", "jane", "secret")
    return lab.registry.push(f"e2e/{name}:1", _fresh_image(lab, name))


def test_a_registry_that_demands_a_login_refuses_without_one(agent: Agent, private: str) -> None:
    agent.put("web", pod("web", container(image=private)))
    failed = agent.wait_pod("web", _pull_fails, what="a failed pull")
    assert "401" in failed.container().message or "authorization" in failed.container().message


def test_the_docker_configuration_of_the_node_opens_it(
    lab: Lab, agent: Agent, private: str
) -> None:
    host = private.partition("/")[0]
    config = {"auths": {host: {"username": "jane", "password": "secret"}}}
    (agent.root_dir / "config.json").write_text(json.dumps(config))
    agent.put("web", pod("web", container(image=private)))
    agent.wait_pod("web")
    assert "secret" not in agent.log_tail(10**6)
    (record,) = (agent.root_dir / "image_manager" / "pulled").iterdir()
    mapping = json.loads(record.read_bytes())["credentialMapping"]
    assert mapping == {private.removesuffix(":1"): {"nodePodsAccessible": True}}


def test_a_credential_provider_opens_it_and_is_asked_once(
    lab: Lab, tmp_path: Path, private: str
) -> None:
    host = private.partition("/")[0]
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    answer = {
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "auth": {host: {"username": "jane", "password": "secret"}},
    }
    asked = tmp_path / "asked"
    (plugins / "keys").write_text(f"#!/bin/sh\ncat >> {asked}\necho '{json.dumps(answer)}'\n")
    (plugins / "keys").chmod(0o755)
    config = tmp_path / "providers.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
        f"- name: keys\n  matchImages: ['{host}']\n  defaultCacheDuration: 1h\n"
        "  apiVersion: credentialprovider.kubelet.k8s.io/v1\n"
    )
    lab.cri.remove_image(private)
    flags = (
        f"--image-credential-provider-config={config}",
        f"--image-credential-provider-bin-dir={plugins}",
    )
    with closing(Agent(tmp_path, lab.endpoint, *flags)) as agent:
        agent.start()
        agent.put("web", pod("web", container(image=private, imagePullPolicy="Always")))
        agent.wait_pod("web")
        agent.put("second", pod("second", container(image=private, imagePullPolicy="Always")))
        agent.wait_pod("second")
        assert asked.read_text().count("CredentialProviderRequest") == 1
        assert f'"image":"{private.removesuffix(":1")}"' in asked.read_text()


def test_a_registry_that_limits_the_rate_is_asked_again_later(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/limited:1", _fresh_image(lab, "limited"))
    lab.registry.limit("e2e/limited")
    agent.put("web", pod("web", container(image=reference)))
    failed = agent.wait_pod("web", _pull_fails, what="a failed pull")
    assert "429" in failed.container().message
    lab.registry.heal("e2e/limited")
    agent.wait_pod("web", timeout=90)


def test_a_layer_that_is_not_what_its_digest_says_is_refused(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/corrupt:1", _fresh_image(lab, "corrupt"))
    lab.registry.corrupt("e2e/corrupt")
    agent.put("web", pod("web", container(image=reference)))
    failed = agent.wait_pod("web", _pull_fails, what="a failed pull")
    assert "sha256" in failed.container().message
    assert not lab.cri.has_image(reference)
    lab.registry.heal("e2e/corrupt")
    agent.wait_pod("web", timeout=90)


def test_a_slow_registry_shows_what_pods_wait_for(lab: Lab, agent: Agent) -> None:
    slow = lab.registry.push("e2e/slow:1", _fresh_image(lab, "slow"))
    other = lab.registry.push("e2e/other:1", _fresh_image(lab, "other"))
    lab.registry.hold("e2e/slow")
    agent.put("slow", pod("slow", container(image=slow)))
    agent.wait_journal("slow", '"Pulling"')
    agent.put("other", pod("other", container(image=other)))
    pulling = agent.wait_pod("slow", lambda it: bool(it.container().message), what="a message")
    assert pulling.container().reason == "ContainerCreating"
    assert pulling.container().message.startswith(f'pulling image "{slow}" since 20')
    waiting = agent.wait_pod("other", lambda it: bool(it.container().message), what="a message")
    assert f'"{slow}" of pod default/{full_name("slow")}' in waiting.container().message
    agent.wait_journal("slow", '"ImagePullProgress"')
    lab.registry.heal("e2e/slow")
    agent.wait_pod("slow")
    assert agent.wait_pod("other").container().message == ""


def test_an_agent_that_dies_during_a_pull_leaves_no_right_behind(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/cut:1", _fresh_image(lab, "cut"))
    lab.registry.hold("e2e/cut")
    agent.put("web", pod("web", container(image=reference)))
    pulling = agent.root_dir / "image_manager" / "pulling"
    until("an intent on disk", lambda: pulling.is_dir() and any(pulling.iterdir()))
    agent.kill9()
    lab.registry.heal("e2e/cut")
    agent.start()
    agent.wait_pod("web")
    until("no intent is left", lambda: not any(pulling.iterdir()))
    assert len(list((agent.root_dir / "image_manager" / "pulled").iterdir())) == 1
