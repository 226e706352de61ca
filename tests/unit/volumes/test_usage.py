"""What volumes take of a disk (docs/behaviour/volumes.md, "Usage")."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.unit.volumes.content_lab import make_pod, running

from nodeagent.api import EmptyDirVolumeSource, HostPathVolumeSource, Volume
from nodeagent.model import PodUID
from nodeagent.volumes import usage
from nodeagent.volumes.threads import DiskThreads
from nodeagent.volumes.usage import Meter, VolumeUsage, VolumeUsages, measure

pytestmark = pytest.mark.anyio

UID = PodUID("uid-1")


def test_blocks_and_entries_are_counted_and_hard_links_once(tmp_path: Path) -> None:
    top = tmp_path / "volume"
    (top / "d").mkdir(parents=True)
    empty = measure(top)
    assert empty.inodes_used == 2
    (top / "d/file").write_bytes(b"x" * 100_000)
    (top / "again").hardlink_to(top / "d/file")
    (top / "link").symlink_to("/")
    found = measure(top)
    assert found.inodes_used == 4
    assert 100_000 <= (found.used or 0) - (empty.used or 0) < 120_000
    assert (found.capacity or 0) >= (found.available or 0) > 0
    assert not found.partial


def test_counting_ends_somewhere(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    found = measure(tmp_path, most=10)
    assert found.partial
    assert found.inodes_used == 10


def metered(usages: VolumeUsages, **paths: Path) -> dict[str, Meter]:
    return {name: partial(usages.in_thread, path, usage.measure) for name, path in paths.items()}


async def test_it_is_measured_once_for_all_and_not_again_for_a_while(tmp_path: Path) -> None:
    calls: list[Path] = []

    def counted(path: Path) -> VolumeUsage:
        calls.append(path)
        return measure(path)

    usages = VolumeUsages(DiskThreads())
    wanted: dict[str, Meter] = {"a": partial(usages.in_thread, tmp_path, counted)}
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(usages.of_pod, UID, wanted)
    await anyio.sleep(59)
    await usages.of_pod(UID, wanted)
    assert len(calls) == 1
    await anyio.sleep(2)
    assert set(await usages.of_pod(UID, wanted)) == {"a"}
    assert len(calls) == 2
    assert set(usages.known(UID)) == {"a"}


async def test_what_cannot_be_measured_has_its_last_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usages = VolumeUsages(DiskThreads(), max_age=0)
    before = await usages.of_pod(UID, metered(usages, a=tmp_path))

    def broken(_path: Path) -> VolumeUsage:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(usage, "measure", broken)
    after = await usages.of_pod(UID, metered(usages, a=tmp_path, b=tmp_path / "b"))
    assert after == before
    assert await usages.of_pod(UID, {}) == {}


async def test_a_look_that_hangs_is_not_joined_by_another_one(tmp_path: Path) -> None:
    began, go, looks = threading.Event(), threading.Event(), []

    def hangs(path: Path) -> VolumeUsage:
        looks.append(path)
        began.set()
        go.wait(60)
        return measure(path)

    usages = VolumeUsages(DiskThreads(), max_age=0)
    wanted: dict[str, Meter] = {"a": partial(usages.in_thread, tmp_path, hangs)}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(usages.of_pod, UID, wanted)
        await to_thread.run_sync(began.wait, 60)
        tasks.cancel_scope.cancel()
    assert await usages.of_pod(UID, wanted) == {}
    assert looks == [tmp_path]
    go.set()


def test_the_room_of_a_file_system_is_told_without_counting(tmp_path: Path) -> None:
    found = usage.room(tmp_path)
    assert found.capacity is not None
    assert found.used is not None
    assert found.capacity >= found.used > 0


async def test_only_volumes_of_the_pod_itself_are_measured(tmp_path: Path) -> None:
    host = Volume(name="host", host_path=HostPathVolumeSource(path=str(tmp_path)))
    own = Volume(name="own", empty_dir=EmptyDirVolumeSource())
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(host, own))
        assert rig.manager.stats.known() == []
        [found] = await rig.manager.stats.of_pod(UID)
        assert (found.name, found.claim, found.local) == ("own", None, True)
        assert found.usage.time > 0
        assert rig.manager.stats.known() == [found]
        assert await rig.manager.stats.of_pod(PodUID("nobody")) == ()
        await rig.manager.unmount(UID)
        assert await rig.manager.stats.of_pod(UID) == ()


async def test_what_shares_the_storage_of_the_node_is_told_apart(tmp_path: Path) -> None:
    memory = Volume(name="memory", empty_dir=EmptyDirVolumeSource(medium="Memory"))
    own = Volume(name="own", empty_dir=EmptyDirVolumeSource())
    async with running(tmp_path) as rig:
        await rig.manager.mount(make_pod(memory, own))
        found = await rig.manager.stats.of_pod(UID, only_local=True)
        assert [one.name for one in found] == ["own"]
        found = await rig.manager.stats.of_pod(UID)
        assert {one.name: one.local for one in found} == {"memory": False, "own": True}
