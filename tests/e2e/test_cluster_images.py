"""Images of pods of the API server: pull secrets as people make them, and what events say.

docs/behaviour/images.md; docs/behaviour/events.md, "Reasons".
"""

import re
from collections.abc import Iterator

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab import images
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import until

NODE = "images-1"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

_REPOSITORY = "e2e/of-the-cluster"


@pytest.fixture
def private(lab: Lab) -> Iterator[str]:
    """An image that only one login may see."""
    layer = images.LayerBuilder()
    layer.file("etc/image-version", b"of the cluster\n")
    layers = [lab.image(images.BUSYBOX).layers[0], layer.done()]
    lab.registry.demand(_REPOSITORY, "jane", "secret")
    reference = lab.registry.push(f"{_REPOSITORY}:1", images.make_image("cluster", layers, {}))
    lab.cri.remove_image(reference)
    yield reference
    lab.cri.remove_image(reference)


@pytest.fixture
def login(plane: ControlPlane, private: str) -> Iterator[str]:
    """The pull secret of its registry."""
    plane.kubectl(
        *("create", "secret", "docker-registry", "login"),
        f"--docker-server={private.partition('/')[0]}",
        *("--docker-username=jane", "--docker-password=secret"),
    )
    yield "login"
    plane.kubectl("delete", "secret", "login")


def _said(plane: ControlPlane, pod: PodView) -> list[tuple[str, str, str]]:
    """Type, reason and message of the events about a pod's containers, oldest first."""
    about = f"involvedObject.uid={pod.uid}"
    events = plane.api.get("/api/v1/namespaces/default/events", fieldSelector=about)["items"]
    return [
        (it["type"], it["reason"], it["message"])
        for it in sorted(events, key=lambda it: str(it["metadata"]["name"]))
        if it["involvedObject"].get("fieldPath") == "spec.containers{main}"
    ]


def _reasons(plane: ControlPlane, pod: PodView) -> set[tuple[str, str]]:
    return {(kind, reason) for kind, reason, _ in _said(plane, pod)}


def test_a_secret_of_kubectl_opens_its_registry(
    plane: ControlPlane, node: ClusterNode, private: str, login: str
) -> None:
    web = node.run("web", container(image=private), imagePullSecrets=[{"name": login}])
    until("an event", lambda: ("Normal", "Started") in _reasons(plane, web))
    pulling, pulled, created, started = _said(plane, web)
    assert pulling == ("Normal", "Pulling", f'Pulling image "{private}"')
    assert pulled[:2] == ("Normal", "Pulled")
    text = rf'Successfully pulled image "{re.escape(private)}" in \S+ \(\S+ including waiting\)\. '
    assert re.fullmatch(rf"{text}Image size: \d+ bytes\.", pulled[2])
    assert (created[1], started[1]) == ("Created", "Started")


def test_without_it_the_registry_refuses_although_the_image_is_there(
    lab: Lab, plane: ControlPlane, node: ClusterNode, private: str, login: str
) -> None:
    node.run("web", container(image=private), imagePullSecrets=[{"name": login}])
    node.create("other", container(image=private, imagePullPolicy="IfNotPresent"))
    other = node.wait_api_pod(
        "other", lambda it: it.container().reason == "ImagePullBackOff", what="ImagePullBackOff"
    )
    prefix = f'Back-off pulling image "{private}": ErrImagePull: '
    assert other.container().message.startswith(prefix)
    assert lab.cri.has_image(private)
    wanted = {("Normal", "Pulling"), ("Warning", "Failed"), ("Normal", "BackOff")}
    until("all events", lambda: wanted <= _reasons(plane, other))
    texts = [text for _, reason, text in _said(plane, other) if reason in ("Failed", "BackOff")]
    assert any(text.startswith(f'Failed to pull image "{private}": ') for text in texts)
    assert {"Error: ErrImagePull", f'Back-off pulling image "{private}"'} <= set(texts)


def test_a_secret_that_comes_later_opens_it_then(
    plane: ControlPlane, node: ClusterNode, private: str
) -> None:
    node.create("web", container(image=private), imagePullSecrets=[{"name": "login"}])
    waiting = node.wait_api_pod(
        "web", lambda it: it.container().reason == "ImagePullBackOff", what="ImagePullBackOff"
    )
    about = f"involvedObject.uid={waiting.uid},reason=FailedToRetrieveImagePullSecret"
    (event,) = until(
        "an event about the secret",
        lambda: plane.api.get("/api/v1/events", fieldSelector=about)["items"],
    )
    assert event["message"] == (
        "Unable to retrieve some image pull secrets (login); "
        "attempting to pull the image may not succeed."
    )
    plane.kubectl(
        *("create", "secret", "docker-registry", "login"),
        f"--docker-server={private.partition('/')[0]}",
        *("--docker-username=jane", "--docker-password=secret"),
    )
    try:
        node.wait_api_pod("web", timeout=120)
    finally:
        plane.kubectl("delete", "secret", "login")
