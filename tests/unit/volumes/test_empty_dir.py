"""emptyDir volumes (docs/behaviour/volumes.md, "emptyDir", "Directories")."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nodeagent.api import (
    Container,
    EmptyDirVolumeSource,
    Pod,
    Quantity,
    ResourceRequirements,
    Volume,
)
from nodeagent.model import PodUID
from nodeagent.testing import RecordedMounter, make_pod
from nodeagent.volumes.empty_dir import EmptyDirPlugin, memory_size, page_size
from nodeagent.volumes.mounter import MountError
from nodeagent.volumes.plugin import SetUp, TearDown, VolumeError
from nodeagent.volumes.threads import DiskThreads

pytestmark = pytest.mark.anyio

ROOM = {"memory": Quantity("4Gi")}


def container(
    limits: dict[str, str] | None = None, requests: dict[str, str] | None = None
) -> Container:
    def amounts(given: dict[str, str] | None) -> dict[str, Quantity]:
        return {name: Quantity(value) for name, value in (given or {}).items()}

    resources = ResourceRequirements(limits=amounts(limits), requests=amounts(requests))
    return Container(name="main", image="busybox", resources=resources)


def set_up(root: Path, mounter: RecordedMounter, medium: str, pod: Pod | None = None) -> SetUp:
    pod = pod or make_pod()
    return SetUp(
        pod=pod,
        volume=Volume(name="data", empty_dir=EmptyDirVolumeSource(medium=medium)),
        root_dir=root,
        directory=root / "pods" / pod.metadata.uid / "volumes/kubernetes.io~empty-dir/data",
        mounter=mounter,
        threads=DiskThreads(),
    )


def tear_down(request: SetUp) -> TearDown:
    return TearDown(
        uid=PodUID(request.uid),
        name="data",
        root_dir=request.root_dir,
        directory=request.directory,
        mounter=request.mounter,
        threads=request.threads,
    )


async def test_memory_is_a_tmpfs_of_the_least_size(tmp_path: Path) -> None:
    mounter, plugin = RecordedMounter(), EmptyDirPlugin(lambda: ROOM)
    request = set_up(tmp_path, mounter, "Memory", make_pod("web", container({"memory": "1Mi"})))
    await plugin.set_up(request)
    await plugin.set_up(request)
    assert mounter.calls == [f"mount tmpfs {request.directory} size=1048576 noswap"]
    assert stat.S_IMODE(request.directory.stat().st_mode) == 0o777
    ready = request.pod_dir / "plugins/kubernetes.io~empty-dir/data/ready"
    assert ready.exists()
    await plugin.tear_down(tear_down(request))
    await plugin.tear_down(tear_down(request))
    assert mounter.points == []
    assert not request.directory.exists()
    assert not ready.parent.exists()


async def test_memory_that_is_not_mounted_any_more_is_mounted_again(tmp_path: Path) -> None:
    mounter, plugin = RecordedMounter(), EmptyDirPlugin()
    request = set_up(tmp_path, mounter, "Memory")
    await plugin.set_up(request)
    mounter.points.clear()
    await plugin.set_up(request)
    assert len(mounter.points) == 1


async def test_a_kernel_that_cannot_keep_it_from_swap_mounts_it_all_the_same(
    tmp_path: Path,
) -> None:
    def before(call: str) -> None:
        if call.endswith("noswap"):
            raise MountError(call)

    mounter = RecordedMounter(before=before)
    request = set_up(tmp_path, mounter, "Memory")
    await EmptyDirPlugin().set_up(request)
    assert mounter.calls == [f"mount tmpfs {request.directory}"]


@pytest.mark.parametrize(
    ("limit", "size_limit", "allocatable", "size"),
    [
        (None, None, None, 0),
        (None, None, ROOM, 4 * 2**30),
        ("1Gi", None, ROOM, 2**30),
        ("1Gi", "1Mi", ROOM, 2**20),
        ("1Gi", "0", ROOM, 2**30),
        (None, "8Gi", ROOM, 4 * 2**30),
    ],
)
def test_the_least_of_what_is_known_bounds_the_memory(
    limit: str | None,
    size_limit: str | None,
    allocatable: dict[str, Quantity] | None,
    size: int,
) -> None:
    pod = make_pod("web", container({"memory": limit} if limit else {}))
    source = EmptyDirVolumeSource(
        medium="Memory", size_limit=Quantity(size_limit) if size_limit else None
    )
    assert memory_size(pod, source, allocatable) == size


async def test_huge_pages_are_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    mounter = RecordedMounter()
    pod = make_pod("web", container(requests={"hugepages-2Mi": "4Mi"}))
    request = set_up(tmp_path, mounter, "HugePages", pod)
    await EmptyDirPlugin().set_up(request)
    assert mounter.calls == [f"mount hugetlbfs {request.directory} pagesize=2Mi"]


def test_huge_pages_that_nobody_asks_for() -> None:
    says = "medium HugePages: hugePages storage requested, but there is no resource request"
    with pytest.raises(VolumeError, match=says):
        page_size(make_pod(), "HugePages")


def test_huge_pages_of_several_sizes() -> None:
    pod = make_pod("web", container(requests={"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}))
    with pytest.raises(VolumeError, match="can't be used if container requests multiple"):
        page_size(pod, "HugePages")
    assert page_size(pod, "HugePages-1Gi") == "1Gi"
    assert page_size(pod, "HugePages-1024Mi") == "1Gi"
    with pytest.raises(VolumeError, match="medium HugePages-4Mi: no container requests"):
        page_size(pod, "HugePages-4Mi")


async def test_another_medium_is_named(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match='unknown storage medium "Cloud"'):
        await EmptyDirPlugin().set_up(set_up(tmp_path, RecordedMounter(), "Cloud"))


async def test_a_mount_of_somebody_else_in_it_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = set_up(tmp_path, RecordedMounter(), "")
    await EmptyDirPlugin().set_up(request)
    foreign = request.directory / "foreign"
    foreign.mkdir()
    monkeypatch.setattr(
        "nodeagent.volumes.removal.mount_points_below",
        lambda _path, _mountinfo: frozenset({str(foreign)}),
    )
    with pytest.raises(VolumeError, match=f"still mounted: {foreign}"):
        await EmptyDirPlugin().tear_down(tear_down(request))
    assert foreign.is_dir()
