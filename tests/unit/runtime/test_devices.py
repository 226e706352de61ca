"""Volumes that containers have as devices (docs/behaviour/csi.md, "Devices")."""

from __future__ import annotations

import pytest

from nodeagent.api import VolumeDevice
from nodeagent.model.volumes import MountedVolume
from nodeagent.runtime.devices import build_devices, volume_groups
from nodeagent.runtime.errors import ContainerStartError
from nodeagent.runtime.security import supplemental_groups
from nodeagent.runtime.unsupported import unsupported_fields
from nodeagent.testing import make_container, make_pod

WANTED = make_container(volume_devices=(VolumeDevice(name="v", device_path="/dev/xvda"),))


@pytest.mark.parametrize(("read_only", "permissions"), [(False, "mrw"), (True, "r")])
def test_yb3_a_container_may_do_with_a_device_what_its_claim_allows(
    read_only: bool, permissions: str
) -> None:
    volume = MountedVolume("v", "/pods/x/link", read_only=read_only, block=True)
    (device,) = build_devices(WANTED, {"v": volume})
    assert (device.container_path, device.host_path) == ("/dev/xvda", "/pods/x/link")
    assert device.permissions == permissions


def test_a_device_that_is_not_there_is_named() -> None:
    for volumes in ({}, {"v": MountedVolume("v", "/somewhere")}):
        with pytest.raises(ContainerStartError) as caught:
            build_devices(WANTED, volumes)
        assert 'cannot find volume "v" to pass into container "main"' in str(caught.value)


def test_yc9_volumes_add_groups_to_those_of_the_pod() -> None:
    volumes = [MountedVolume("a", "/a", groups=(5, 7)), MountedVolume("b", "/b", groups=(5,))]
    groups = volume_groups(volumes)
    assert groups == [5, 7]
    assert supplemental_groups(make_pod("web"), groups) == [5, 7]


def test_without_an_api_server_nobody_serves_devices() -> None:
    pod = make_pod("web", WANTED)
    assert unsupported_fields(pod) == ["spec.containers[0].volumeDevices"]
    assert unsupported_fields(pod, cluster=True) == []
