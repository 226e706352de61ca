"""Pulls that work, pulls that cannot, and what the pull policies mean."""

import base64
import itertools
import json
import re
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tests.e2e.lab import images
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container, pod
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


def _events(agent: Agent, name: str) -> list[tuple[str, str]]:
    """Reason and text of what was said about a pod's containers, oldest first."""
    records = map(json.loads, agent.ask(f"/debug/journal?pod=default/{name}").splitlines())
    return [(it["what"], it["why"]) for it in records if it.get("fields", {}).get("field_path")]


def test_an_absent_image_is_pulled_once_and_then_present(lab: Lab, agent: Agent) -> None:
    reference = lab.registry.push("e2e/once:1", _fresh_image(lab, "once"))
    agent.put("web", pod("web", container(image=reference)))
    web = agent.wait_pod("web")
    version = lab.cri.exec(web.container().id, "cat", "/etc/image-version").stdout
    assert version == "once\n"
    asked = lab.registry.asked["e2e/once:1"]
    size = lab.cri.image_size(reference)
    pulling, pulled, *_ = _events(agent, "web")
    assert pulling == ("Pulling", f'Pulling image "{reference}"')
    time = r"\d+(\.\d{1,3})?m?s"
    text = re.escape(f'Successfully pulled image "{reference}" in TIME (TIME including waiting).')
    text = f"{text.replace('TIME', time)} Image size: {size} bytes\\."
    assert pulled[0] == "Pulled"
    assert re.fullmatch(text, pulled[1])
    metrics = agent.ask("/metrics")
    assert 'kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"} 1.0' in metrics
    agent.put("second", pod("second", container(image=reference)))
    agent.wait_pod("second")
    assert lab.registry.asked["e2e/once:1"] == asked
    assert _events(agent, "second")[0] == (
        "Pulled",
        f'Container image "{reference}" already present on machine and can be accessed by the pod',
    )


def test_an_image_is_known_by_its_digest(lab: Lab, agent: Agent) -> None:
    image = _fresh_image(lab, "digest")
    lab.registry.push("e2e/digest:1", image)
    reference = lab.registry.reference(f"e2e/digest@{image.manifest_digest}")
    agent.put("web", pod("web", container(image=reference)))
    agent.wait_pod("web")
    asked = lab.registry.asked.total()
    agent.put("second", pod("second", container(image=reference, imagePullPolicy="IfNotPresent")))
    agent.wait_pod("second")
    assert lab.registry.asked.total() == asked


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


def _login(kind: str, registry: str) -> str:
    """A pull secret as people write them into a manifest."""
    pair = base64.b64encode(b"jane:secret").decode()
    auths = {registry: {"auth": pair}}
    key, content = {
        "kubernetes.io/dockerconfigjson": (".dockerconfigjson", {"auths": auths}),
        "kubernetes.io/dockercfg": (".dockercfg", auths),
    }[kind]
    secret = {"type": kind, "stringData": {key: json.dumps(content)}}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, **secret}
    )


@pytest.mark.parametrize("kind", ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"])
def test_a_pull_secret_opens_it_for_those_pods_that_name_it(
    lab: Lab, agent: Agent, private: str, kind: str
) -> None:
    named: Json = {"imagePullSecrets": [{"name": "login"}]}
    agent.put("login", _login(kind, private.partition("/")[0]))
    agent.put("web", pod("web", container(image=private), **named))
    agent.wait_pod("web")
    (record,) = (agent.root_dir / "image_manager" / "pulled").iterdir()
    mapping = json.loads(record.read_bytes())["credentialMapping"]
    (right,) = mapping[private.removesuffix(":1")]["kubernetesSecrets"]
    assert (right["namespace"], right["name"]) == ("default", "login")
    asked = lab.registry.asked.total()
    # The image is there now, and still the registry has to say who may use it.
    agent.put("other", pod("other", container(image=private, imagePullPolicy="IfNotPresent")))
    refused = agent.wait_pod("other", _pull_fails, what="a failed pull")
    assert "401" in refused.why or "authorization" in refused.why
    assert lab.cri.has_image(private)
    agent.put("never", pod("never", container(image=private, imagePullPolicy="Never")))
    agent.wait_pod(
        "never", lambda it: it.container().reason == "ErrImageNeverPull", what="ErrImageNeverPull"
    )
    again = container(image=private, imagePullPolicy="Never")
    agent.put("same", pod("same", again, **named))
    agent.wait_pod("same")
    assert lab.registry.asked.total() == asked


def test_a_pull_secret_that_is_not_there_is_named(agent: Agent, private: str) -> None:
    agent.put("web", pod("web", container(image=private), imagePullSecrets=[{"name": "gone"}]))
    agent.wait_journal(
        "web",
        "FailedToRetrieveImagePullSecret",
        "Unable to retrieve some image pull secrets (gone)",
    )
    agent.wait_pod("web", _pull_fails, what="a failed pull")


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


def test_so_many_pulls_as_are_allowed_run_side_by_side(lab: Lab, tmp_path: Path) -> None:
    held = {name: lab.registry.push(f"e2e/{name}:1", _fresh_image(lab, name)) for name in "ab"}
    last = lab.registry.push("e2e/c:1", _fresh_image(lab, "c"))
    for name in held:
        lab.registry.hold(f"e2e/{name}")
    asked = lab.registry.asked
    flags = ("--serialize-image-pulls=false", "--max-parallel-image-pulls=2")
    with closing(Agent(tmp_path, lab.endpoint, *flags)) as agent:
        agent.start()
        for name, reference in held.items():
            agent.put(name, pod(name, container(image=reference)))
        until("both are pulled", lambda: all(asked[f"e2e/{name}:1"] for name in held))
        agent.put("c", pod("c", container(image=last)))
        waiting = agent.wait_pod("c", lambda it: bool(it.container().message), what="a message")
        assert waiting.container().message.startswith("waiting since 20")
        assert asked["e2e/c:1"] == 0
        lab.registry.heal("e2e/a")
        agent.wait_pod("a")
        agent.wait_pod("c")
        assert agent.wait_pod("b", lambda it: bool(it.containers)).phase == "Pending"
        lab.registry.heal("e2e/b")
        agent.wait_pod("b")


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
