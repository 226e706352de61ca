"""Mounts of containers (docs/behaviour/volumes.md, "subPath", "Mounts", "Image")."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.fakes import make_container

from nodeagent.api import VolumeMount
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.mounts import (
    ManagedFiles,
    MountInputs,
    build_mounts,
    prepare_sub_paths,
    sub_path_of,
)

pytestmark = pytest.mark.anyio

UID = PodUID("u")
VOLUMES = {
    "data": MountedVolume("data", "/host/data"),
    "image": MountedVolume("image", "", read_only=True, image="example.org/data:1"),
}


def mount(**fields: Any) -> VolumeMount:
    return VolumeMount(name=fields.pop("name", "data"), mount_path="/data", **fields)


class Service:
    """Prepares parts of volumes, as far as a test lets it."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.made: list[str] = []

    async def make(self, volume: MountedVolume, sub_path: str) -> None:
        self.made.append(f"{volume.name}/{sub_path}")
        if self.fails == "make":
            raise SyncError("No space left on device")

    async def prepare(
        self, uid: PodUID, container: str, index: int, volume: MountedVolume, sub_path: str
    ) -> str:
        if self.fails == "prepare":
            raise SyncError("it leads out")
        return f"/sub/{uid}/{volume.name}/{container}/{index}/{sub_path}"


def test_a_sub_path_is_taken_as_it_is_or_expanded() -> None:
    assert sub_path_of(mount(), {}) == ""
    assert sub_path_of(mount(sub_path="a/$(B)"), {"B": "b"}) == "a/$(B)"
    assert sub_path_of(mount(sub_path_expr="a/$(B)/$$(B)"), {"B": "b"}) == "a/b/$(B)"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sub_path": "/etc"}, "error SubPath `/etc` must not be an absolute path"),
        ({"sub_path": "a/../.."}, "unable to provision SubPath `a/../..`: must not contain '..'"),
        ({"sub_path_expr": "$(UP)/x"}, "unable to provision SubPath `../x`: must not contain '..'"),
        ({"sub_path_expr": "$(B)/$(A)/$(EMPTY)/$(A)"}, "missing value for B, A, EMPTY"),
    ],
)
def test_a_sub_path_that_cannot_be_one(fields: dict[str, str], says: str) -> None:
    with pytest.raises(ContainerStartError) as caught:
        sub_path_of(mount(**fields), {"UP": "..", "EMPTY": ""})
    assert (caught.value.reason, caught.value.message) == (Waiting.CONFIG, says)


async def test_each_part_is_prepared_for_its_mount() -> None:
    service = Service()
    container = make_container(
        volume_mounts=(mount(), mount(sub_path="a"), mount(sub_path_expr="$(B)"))
    )
    prepared = await prepare_sub_paths(UID, container, VOLUMES, {"B": "b"}, service)
    assert prepared == {1: "/sub/u/data/web/1/a", 2: "/sub/u/data/web/2/b"}
    assert service.made == ["data/a", "data/b"]
    mounts = build_mounts(
        container, MountInputs(volumes=VOLUMES, sub_paths=prepared), ManagedFiles()
    )
    assert [m.host_path for m in mounts] == ["/host/data", prepared[1], prepared[2]]


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        (
            "make",
            (
                'failed to create subPath directory for volumeMount "data" of container "web": '
                "No space left on device"
            ),
        ),
        (
            "prepare",
            'failed to prepare subPath for volumeMount "data" of container "web": it leads out',
        ),
    ],
)
async def test_a_part_that_cannot_be_had_is_a_configuration_error(fails: str, says: str) -> None:
    container = make_container(volume_mounts=(mount(sub_path="a"),))
    with pytest.raises(ContainerStartError) as caught:
        await prepare_sub_paths(UID, container, VOLUMES, {}, Service(fails))
    assert (caught.value.reason, caught.value.message) == (Waiting.CONFIG, says)


async def test_an_image_is_mounted_by_the_runtime() -> None:
    container = make_container(volume_mounts=(mount(name="image", sub_path="etc"),))
    assert await prepare_sub_paths(UID, container, VOLUMES, {}, Service("prepare")) == {}
    image = v1.ImageSpec(image="sha256:1", user_specified_image="example.org/data:1")
    (made,) = build_mounts(
        container, MountInputs(volumes=VOLUMES, images={"image": image}), ManagedFiles()
    )
    assert made == v1.Mount(
        container_path="/data",
        readonly=True,
        propagation=v1.MountPropagation.PROPAGATION_PRIVATE,
        image=image,
        image_sub_path="etc",
    )


def recursive(supported: bool, **fields: Any) -> bool:
    container = make_container(volume_mounts=(mount(**fields),))
    inputs = MountInputs(volumes=VOLUMES, recursive_read_only=supported)
    return build_mounts(container, inputs, ManagedFiles())[0].recursive_read_only


def test_recursive_read_only_needs_a_handler_that_can() -> None:
    assert not recursive(True)
    assert not recursive(True, recursive_read_only="Disabled")
    assert recursive(True, read_only=True, recursive_read_only="IfPossible")
    assert not recursive(False, read_only=True, recursive_read_only="IfPossible")
    assert recursive(True, read_only=True, recursive_read_only="Enabled")


@pytest.mark.parametrize(
    ("supported", "fields", "says"),
    [
        (False, {"read_only": True}, "it is not supported by the runtime"),
        (True, {}, "it is not read-only"),
        (
            True,
            {"read_only": True, "mount_propagation": "HostToContainer"},
            "it is not compatible with propagation HostToContainer",
        ),
    ],
)
def test_recursive_read_only_that_cannot_be(
    supported: bool, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(ContainerStartError, match=says) as caught:
        recursive(supported, recursive_read_only="Enabled", **fields)
    assert caught.value.message.startswith('volume "data" requested recursive read-only mode')


def test_the_runtime_is_asked_to_label_volumes_that_may_be_labelled() -> None:
    volumes = {
        "own": MountedVolume("own", "/own", relabel=True),
        "host": MountedVolume("host", "/host"),
    }
    mounts = tuple(VolumeMount(name=name, mount_path=f"/{name}") for name in volumes)
    made = build_mounts(
        make_container(volume_mounts=mounts), MountInputs(volumes=volumes), ManagedFiles()
    )
    assert [one.selinux_relabel for one in made] == [True, False]
