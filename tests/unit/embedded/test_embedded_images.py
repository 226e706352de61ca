"""Images without content: names, ids, presence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent import rpc
from nodeagent.embedded import SimulatedBackend, open_embedded
from nodeagent.embedded.images import ImageStore, parse_reference
from nodeagent.proto.runtime import v1

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.25", "docker.io/library/nginx:1.25"),
        ("team/app", "docker.io/team/app:latest"),
        ("docker.io/nginx", "docker.io/library/nginx:latest"),
        ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
        ("localhost/app:1", "localhost/app:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("127.0.0.1:1/a/b:c", "127.0.0.1:1/a/b:c"),
        ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}"),
        (f"ghcr.io/a/b:tag@{DIGEST}", f"ghcr.io/a/b@{DIGEST}"),
        ("EXAMPLE.com/app", "EXAMPLE.com/app:latest"),
        ("a__b/c-d.e", "docker.io/a__b/c-d.e:latest"),
    ],
)
def test_a_name_has_a_normal_form(name: str, normal: str) -> None:
    assert parse_reference(name).text == normal


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "Nginx",
        "nginx:",
        "nginx:-tag",
        "nginx@sha256:abc",
        "http://nginx",
        "a//b",
        "/a",
        "a/",
        "-a",
        "nginx:" + "t" * 129,
        "a" * 256,
        "b" * 64,
        "Team/app",
        "ä/b",
        "nginx latest",
    ],
)
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(rpc.InvalidArgument, match="failed to parse image reference"):
        ImageStore().pull(name)


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_refused_and_a_normal_form_is_its_own(name: str) -> None:
    try:
        reference = parse_reference(name)
    except rpc.InvalidArgument:
        return
    assert parse_reference(reference.text) == reference


def test_an_image_is_present_after_its_pull_under_all_its_names() -> None:
    store = ImageStore()
    assert store.find("nginx") is None
    image_id = store.pull("nginx")
    image = store.require("nginx")
    assert image.id == image_id
    assert image.size > 0
    assert image.uid == v1.Int64Value(value=0)
    for name in ("docker.io/library/nginx:latest", image_id, image_id[7:], image.repo_digests[0]):
        assert store.find(name) is image
    assert store.find("nginx:other") is None
    assert store.find("not valid!") is None


def test_ids_are_the_same_each_time_and_differ_between_names() -> None:
    assert ImageStore().pull("nginx") == ImageStore().pull("docker.io/library/nginx:latest")
    assert ImageStore().pull("nginx") != ImageStore().pull("nginx:1")


def test_a_digest_stays_what_it_is() -> None:
    store = ImageStore()
    store.pull(f"ghcr.io/a/b@{DIGEST}")
    image = store.require(f"ghcr.io/a/b@{DIGEST}")
    assert image.repo_tags == []
    assert image.repo_digests == [f"ghcr.io/a/b@{DIGEST}"]


def test_names_that_a_scenario_refuses_cannot_be_pulled() -> None:
    store = ImageStore()
    store.refuse("127.0.0.1:1/*", rpc.Unavailable("connection refused"))
    with pytest.raises(rpc.Unavailable, match="connection refused"):
        store.pull("127.0.0.1:1/app:2")
    store.pull("nginx")
    store.accept("127.0.0.1:1/*")
    store.pull("127.0.0.1:1/app:2")


def test_the_names_of_a_store_make_the_same_store_again() -> None:
    store = ImageStore(["nginx", f"ghcr.io/a/b@{DIGEST}"])
    assert ImageStore(store.references()).images == store.images


@pytest.mark.anyio
async def test_the_image_service_lists_finds_and_removes() -> None:
    async with open_embedded(SimulatedBackend()) as embedded:
        images = embedded.images
        nginx = v1.ImageSpec(image="nginx")
        assert (await images.image_status(nginx)).image is None
        image_id = await images.pull_image(nginx, sandbox_config=v1.PodSandboxConfig())
        await images.pull_image(v1.ImageSpec(image="other"))
        assert len(await images.list_images()) == 2
        (found,) = await images.list_images(v1.ImageFilter(image=nginx))
        assert found.id == image_id
        info = await images.image_fs_info()
        used = info.image_filesystems[0].used_bytes
        assert used is not None
        assert used.value >= found.size
        for _ in range(2):
            await images.remove_image(v1.ImageSpec(image=image_id))
        assert (await images.image_status(nginx)).image is None
        assert await images.list_images(v1.ImageFilter(image=nginx)) == []
        with pytest.raises(rpc.InvalidArgument):
            await images.image_status(v1.ImageSpec())
