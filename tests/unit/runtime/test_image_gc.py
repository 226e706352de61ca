"""Images that nothing uses (docs/behaviour/garbage.md, "Images")."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.unit.runtime.fakes import EventLog, make_pod

from nodeagent.api import Volume
from nodeagent.api.volumes import ImageVolumeSource
from nodeagent.journal import Journal
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, RpcError
from nodeagent.runtime.image_fs import ImageFilesystem
from nodeagent.runtime.image_gc import ImageGC, ImageGCError, images_in_use
from nodeagent.runtime.image_gc_plan import (
    ImageGCPolicy,
    ImageRecord,
    SeenImage,
    bytes_to_free,
    detect,
    enough,
    for_space,
    full_reference,
    too_old,
    usage_percent,
)
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.sandbox_image import looks_like_one, sandbox_images

MIB = 1024**2
POLICY = ImageGCPolicy()


class Runtime:
    """Images on a disk of 100 MiB, and containers that use some of them."""

    def __init__(self) -> None:
        self.images: dict[str, v1.Image] = {}
        self.containers: list[v1.Container] = []
        self.info: dict[str, str] = {"config": json.dumps({"sandboxImage": "k8s.test/pause:3.9"})}
        self.other_bytes = 0
        self.blocks = 100
        self.errors: dict[str, RpcError] = {}
        self.removed: list[str] = []

    def add(self, name: str, mib: int = 10, *, pinned: bool = False) -> None:
        self.images[name] = v1.Image(
            id=f"id-{name}", repo_tags=[full_reference(name)], size=mib * MIB, pinned=pinned
        )

    def use(self, *names: str) -> None:
        self.containers = [
            v1.Container(
                id=f"c-{name}",
                image=v1.ImageSpec(image=f"id-{name}"),
                state=v1.ContainerState.CONTAINER_EXITED,
            )
            for name in names
        ]

    async def list_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        self._check("list_images")
        return list(self.images.values())

    async def remove_image(self, image: v1.ImageSpec) -> None:
        name = image.image.removeprefix("id-")
        self._check(name)
        del self.images[name]
        self.removed.append(name)

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        return self.containers

    async def status(self, verbose: bool = False) -> v1.StatusResponse:
        assert verbose
        self._check("status")
        return v1.StatusResponse(info=self.info)

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        place = v1.FilesystemIdentifier(mountpoint="/images")
        return v1.ImageFsInfoResponse(image_filesystems=[v1.FilesystemUsage(fs_id=place)])

    def statvfs(self, path: str) -> os.statvfs_result:
        assert path == "/images"
        used = sum(image.size for image in self.images.values()) // MIB + self.other_bytes
        free = max(self.blocks - used, 0)
        return os.statvfs_result((MIB, MIB, self.blocks, free, free, 1, 1, 1, 0, 255))

    def _check(self, what: str) -> None:
        if (error := self.errors.get(what)) is not None:
            raise error


class Node:
    """A collector and all around it."""

    def __init__(self, **policy: Any) -> None:
        self.runtime = Runtime()
        self.events = EventLog()
        self.journal = Journal()
        self.registry = CollectorRegistry()
        self.spared: set[str] = set()
        self.ready = True
        self.left: Mapping[str, object] = {}
        self.gc = ImageGC(
            images=self.runtime,
            node=self.runtime,
            disk=ImageFilesystem(self.runtime, self.runtime.statvfs),
            policy=replace(POLICY, **policy),
            spared=lambda: self.spared,
            sources_ready=lambda: self.ready,
            events=self.events,
            journal=self.journal,
            metrics=RuntimeMetrics(self.registry),
            forget=self.forget,
        )

    async def forget(self, present: Mapping[str, object]) -> None:
        self.left = dict(present)

    async def aged(self, seconds: float = 600) -> None:
        """Look, and let the images grow old."""
        await self.gc.look()
        await anyio.sleep(seconds)
        await self.gc.look()

    @property
    def removed(self) -> list[str]:
        return self.runtime.removed


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.anyio
async def test_gi5_images_go_until_there_is_room(node: Node) -> None:
    for name in "abcdefghi":
        node.runtime.add(name)
        await node.gc.look()
        await anyio.sleep(200)
    await node.gc.look()
    freed = await node.gc.collect()
    # 90 of 100 MiB are used: 10 MiB have to go.
    assert (freed, node.removed) == (10 * MIB, ["a"])
    assert node.events.node == []


@pytest.mark.anyio
async def test_gi5_nothing_goes_below_the_threshold(node: Node) -> None:
    for name in "abcdefgh":
        node.runtime.add(name)
    await node.aged()
    assert await node.gc.collect() == 0
    node.runtime.other_bytes = 4
    assert await node.gc.collect() == 0
    node.runtime.other_bytes = 5
    assert await node.gc.collect() == 10 * MIB


@pytest.mark.anyio
async def test_gi2_gi5_the_least_recently_used_go_first(node: Node) -> None:
    node.runtime.other_bytes = 60
    for name in ("used", "first", "never", "last"):
        node.runtime.add(name)
    for names in (("first", "used"), ("last", "used"), ("used",)):
        node.runtime.use(*names)
        await node.aged()
    await node.gc.collect()
    assert node.removed == ["never", "first"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "named",
    [
        v1.Container(image=v1.ImageSpec(image="id-app:1")),
        v1.Container(image_ref="id-app:1"),
        v1.Container(image_id="id-app:1"),
        v1.Container(image=v1.ImageSpec(image="app:1")),
        v1.Container(image=v1.ImageSpec(image="x", user_specified_image="docker.io/library/app:1")),
    ],
)
async def test_gi2_a_container_may_name_its_image_in_any_way(
    node: Node, named: v1.Container
) -> None:
    node.runtime.other_bytes = 90
    node.runtime.add("app:1")
    node.runtime.containers = [named]
    await node.aged()
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    assert node.removed == []


@pytest.mark.anyio
async def test_gi2_gi3_what_is_used_without_a_container_stays(node: Node) -> None:
    node.runtime.other_bytes = 70
    for name in ("volume:1", "asked:1", "idle:1"):
        node.runtime.add(name)
    node.spared = {"volume:1", "id-asked:1"}
    await node.aged()
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    assert node.removed == ["idle:1"]


def test_gi2_image_volumes_of_wanted_pods_are_in_use() -> None:
    volumes = (
        Volume(name="data"),
        Volume(name="model", image=ImageVolumeSource(reference="registry.test/model:1")),
    )
    assert images_in_use([make_pod(volumes=volumes)], ["id-1"]) == {"registry.test/model:1", "id-1"}


@pytest.mark.anyio
async def test_gi4_what_is_pinned_and_the_image_of_sandboxes_stay(node: Node) -> None:
    node.runtime.other_bytes = 70
    node.runtime.add("pinned", pinned=True)
    node.runtime.add("k8s.test/pause:3.9")
    node.runtime.add("other.test/pause:1")
    await node.aged()
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    assert node.removed == ["other.test/pause:1"]


@pytest.mark.anyio
@pytest.mark.parametrize("silent", ["empty", "failing"])
async def test_gi4_when_the_runtime_does_not_tell_all_that_are_called_so_stay(
    node: Node, silent: str
) -> None:
    node.runtime.info = {}
    if silent == "failing":
        node.runtime.errors["status"] = Internal("down")
    node.runtime.other_bytes = 90
    node.runtime.add("registry.test/pause:3.9")
    await node.aged()
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    assert node.removed == []


@pytest.mark.parametrize(
    ("info", "names"),
    [
        ({"config": '{"sandboxImage": "k8s.test/pause:3"}'}, {"k8s.test/pause:3"}),
        ({"config": '{"cri": {"sandbox_image": "a:1"}}'}, {"a:1"}),
        ({"config": '{"pinnedImages": {"sandbox": "b:1"}}'}, {"b:1"}),
        ({"crio": '[{"pause_image": "c:1"}]'}, {"c:1"}),
        ({"config": '{"sandboxImage": ""}', "golang": "go1.22"}, set()),
        ({"config": "[" * 5000}, set()),
        ({}, set()),
    ],
)
def test_gi4_the_verbose_status_names_it(info: dict[str, str], names: set[str]) -> None:
    assert sandbox_images(info) == names


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("registry.k8s.io/pause:3.9", True),
        ("pause", True),
        ("k8s.test:5000/pause@sha256:00", True),
        ("k8s.test/pause-amd64:3", False),
        ("k8s.test/pause/app:1", False),
    ],
)
def test_gi4_how_images_of_sandboxes_are_called(name: str, is_one: bool) -> None:
    assert looks_like_one(name) is is_one


@pytest.mark.anyio
async def test_gi1_gi6_a_new_image_has_time_to_be_used(node: Node) -> None:
    node.runtime.other_bytes = 80
    node.runtime.add("new")
    await node.aged(119)
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    await anyio.sleep(1)
    await node.gc.look()
    assert await node.gc.collect() == 10 * MIB


@pytest.mark.anyio
async def test_gi7_old_images_go_whatever_the_disk() -> None:
    node = Node(max_age=3600.0)
    node.runtime.add("old")
    node.runtime.add("never")
    node.runtime.add("used")
    node.runtime.use("old", "used")
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await anyio.sleep(10)
        node.runtime.use("used")
        await anyio.sleep(3500)
        assert node.removed == []
        await anyio.sleep(400)
        assert node.removed == ["never", "old"]
        tasks.cancel_scope.cancel()
    name = "kubelet_image_garbage_collected_total"
    assert node.registry.get_sample_value(name, {"reason": "age"}) == 2


@pytest.mark.anyio
async def test_gi8_gi10_what_cannot_be_freed_is_said_less_and_less_often(node: Node) -> None:
    node.runtime.other_bytes = 90
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await anyio.sleep(4 * 3600)
        tasks.cancel_scope.cancel()
    text = (
        "Failed to garbage collect required amount of images. Attempted to free "
        f"{10 * MIB} bytes, but only found 0 bytes eligible to free."
    )
    full = [e for e in node.events.node if e[1] == "FreeDiskSpaceFailed"]
    assert set(full) == {("Warning", "FreeDiskSpaceFailed", text)}
    # After 0, 5, 15, 35, 75 minutes, then every hour.
    assert len(full) == 7
    assert node.events.node.count(("Warning", "ImageGCFailed", text)) == 6


@pytest.mark.anyio
async def test_gi8_it_tells_what_it_found(node: Node) -> None:
    node.runtime.other_bytes = 90
    node.runtime.add("small", 3)
    await node.aged()
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    assert node.events.node[0][2].endswith(
        f"Attempted to free {13 * MIB} bytes, but only found {3 * MIB} bytes eligible to free."
    )


@pytest.mark.anyio
async def test_gi9_a_removal_that_fails_does_not_stop_the_rest(node: Node) -> None:
    node.runtime.other_bytes = 70
    for name in ("bad", "good"):
        node.runtime.add(name)
        await node.aged()
    node.runtime.errors["bad"] = Internal("in use elsewhere")
    with pytest.raises(ImageGCError) as caught:
        await node.gc.collect()
    assert node.removed == ["good"]
    assert str(caught.value) == (
        f"wanted to free {10 * MIB} bytes, but freed {10 * MIB} bytes space with errors in image "
        "deletion: docker.io/library/bad:latest: in use elsewhere"
    )


@pytest.mark.anyio
async def test_gi10_an_event_comes_with_the_second_failure(node: Node) -> None:
    """events.md, EV63."""
    node.runtime.errors["list_images"] = Internal("down")
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await anyio.sleep(299)
        assert node.events.node == []
        await anyio.sleep(2)
        assert node.events.node == [("Warning", "ImageGCFailed", "down")]
        node.runtime.errors.clear()
        await anyio.sleep(300)
        node.runtime.errors["list_images"] = Internal("down")
        await anyio.sleep(300)
        assert len(node.events.node) == 1
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_gi10_an_answer_that_nobody_foresaw_ends_nothing(node: Node) -> None:
    node.gc.disk = ImageFilesystem(node.runtime, lambda _path: os.statvfs("a\0b"))
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await anyio.sleep(301)
        tasks.cancel_scope.cancel()
    assert node.events.node == [("Warning", "ImageGCFailed", "embedded null byte")]


@pytest.mark.anyio
async def test_gi11_a_disk_without_a_size_is_told(node: Node) -> None:
    """events.md, EV63."""
    node.runtime.blocks = 0
    with pytest.raises(ImageGCError):
        await node.gc.collect()
    assert node.events.node == [
        ("Warning", "InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
    ]


@pytest.mark.anyio
async def test_gi12_it_may_be_off() -> None:
    node = Node(high_percent=100)
    node.runtime.errors["list_images"] = Internal("must not be asked")
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await anyio.sleep(3600)
        tasks.cancel_scope.cancel()
    assert node.events.node == []


@pytest.mark.anyio
async def test_another_policy_that_comes_in_the_midst_of_a_turn_holds_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.runtime.other_bytes = 70
    node.runtime.add("a")
    node.runtime.add("b")
    await node.aged()
    removing, go_on, remove = anyio.Event(), anyio.Event(), node.runtime.remove_image

    async def slowly(image: v1.ImageSpec) -> None:
        removing.set()
        await go_on.wait()
        await remove(image)

    monkeypatch.setattr(node.runtime, "remove_image", slowly)
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await removing.wait()
        node.gc.reconfigure(replace(node.gc.policy, high_percent=75, low_percent=70))
        go_on.set()
        await anyio.sleep(1)
        assert node.removed == ["a", "b"]
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_gi13_what_went_is_told_and_counted(node: Node) -> None:
    node.runtime.other_bytes = 76
    node.runtime.add("a", 10)
    node.runtime.add("b", 4)
    node.runtime.use("b")
    await node.aged()
    await node.gc.collect()
    (record,) = node.journal.select()
    assert (record.what, record.why) == ("ImageCollected", "never in use")
    assert record.fields == {"image": "docker.io/library/a:latest", "bytes": 10 * MIB}
    name = "kubelet_image_garbage_collected_total"
    assert node.registry.get_sample_value(name, {"reason": "space"}) == 1
    assert set(node.left) == {"id-b"}


@pytest.mark.anyio
async def test_nothing_goes_before_all_sources_have_spoken(node: Node) -> None:
    node.ready = False
    node.runtime.other_bytes = 80
    node.runtime.add("a")
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.gc.run)
        await anyio.sleep(1000)
        assert node.removed == []
        node.ready = True
        await anyio.sleep(2)
        assert node.removed == ["a"]
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_plan_is_what_collecting_does(node: Node) -> None:
    node.runtime.other_bytes = 60
    for name in "abc":
        node.runtime.add(name)
        await node.aged()
    plan = await node.gc.plan()
    assert (plan.wanted, plan.usage.capacity) == (10 * MIB, 100 * MIB)
    assert [d.image.id for d in plan.images] == ["id-a"]
    await node.gc.collect()
    assert node.removed == ["a"]
    assert (await node.gc.plan()).images == ()


@pytest.mark.anyio
async def test_all_that_is_unused_can_be_freed_at_once(node: Node) -> None:
    for name in ("a", "b", "used"):
        node.runtime.add(name)
    node.runtime.use("used")
    await node.aged()
    assert await node.gc.free() == (20 * MIB, [])
    assert set(node.runtime.images) == {"used"}


# -- the choice -------------------------------------------------------------------------------

records = st.builds(
    lambda n, size, pinned, first, last, in_use: ImageRecord(
        SeenImage(f"i{n}", (), size, pinned), first, 1000.0 if in_use else last, in_use
    ),
    st.integers(0, 10**6),
    st.integers(0, 100),
    st.booleans(),
    st.floats(0, 1000),
    st.none() | st.floats(0, 999),
    st.booleans(),
)
seen = st.lists(records, max_size=12, unique_by=lambda r: r.image.id)


@given(seen, st.integers(0, 300))
def test_gi4_gi5_gi6_only_what_may_goes_and_no_more_than_needed(
    given_records: list[ImageRecord], wanted: int
) -> None:
    now = 1000.0
    by_id = {r.image.id: r for r in given_records}
    chosen = enough(for_space(given_records, POLICY, now), wanted)
    went = [by_id[d.image.id] for d in chosen]
    for record in went:
        assert not record.in_use
        assert not record.image.pinned
        assert now - record.first_seen >= POLICY.min_age
    freed = sum(r.image.size for r in went)
    if went:
        assert freed - went[-1].image.size < wanted
    if freed < wanted:
        kept = [r for r in given_records if r not in went]
        assert all(r.in_use or r.image.pinned or now - r.first_seen < POLICY.min_age for r in kept)
    order = [(-1.0 if r.last_used is None else r.last_used, r.first_seen) for r in went]
    assert order == sorted(order)


@given(seen, st.randoms(use_true_random=False))
def test_gi5_in_which_order_the_runtime_lists_them_does_not_count(
    given_records: list[ImageRecord], chance: random.Random
) -> None:
    alike = [replace(record, first_seen=0.0, last_used=None) for record in given_records]
    chosen = for_space(alike, POLICY, 1000.0)
    chance.shuffle(alike)
    assert for_space(alike, POLICY, 1000.0) == chosen


@given(seen, st.floats(1, 2000))
def test_gi7_age_takes_exactly_those_that_were_unused_for_longer(
    given_records: list[ImageRecord], max_age: float
) -> None:
    now = 1000.0
    chosen = {d.image.id for d in too_old(given_records, replace(POLICY, max_age=max_age), now)}
    for record in given_records:
        idle = record.last_used is None or now - record.last_used > max_age
        may = not record.in_use and not record.image.pinned
        assert (record.image.id in chosen) is (idle and may)
    assert too_old(given_records, POLICY, now) == []


@given(st.integers(10**4, 10**13), st.floats(0, 1), st.integers(1, 100), st.data())
def test_gi5_what_is_freed_brings_usage_down_to_the_low_threshold(
    capacity: int, share: float, high: int, data: st.DataObject
) -> None:
    low = data.draw(st.integers(0, high - 1))
    available = int(capacity * share)
    policy = ImageGCPolicy(high_percent=high, low_percent=low)
    wanted = bytes_to_free(capacity, available, policy)
    if high == 100 or usage_percent(capacity, available) < high:
        assert wanted == 0
    elif wanted > 0:
        assert usage_percent(capacity, min(available + wanted, capacity)) <= low + 1


@given(seen, st.sets(st.integers(0, 10**6)), st.sets(st.integers(0, 10**6)))
def test_gi1_gi2_a_look_remembers_when_images_were_seen_and_used(
    known: list[ImageRecord], present: set[int], uses: set[int]
) -> None:
    before = {r.image.id: r for r in known}
    images = [SeenImage(f"i{n}") for n in present]
    after = detect(before, images, {f"i{n}" for n in uses}, 2000.0)
    assert set(after) == {image.id for image in images}
    for name, record in after.items():
        in_use = name in {f"i{n}" for n in uses}
        old = before.get(name)
        assert record.in_use is in_use
        assert record.first_seen == (old.first_seen if old else 2000.0)
        assert record.last_used == (2000.0 if in_use else old.last_used if old else None)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("team/app:1", "docker.io/team/app:1"),
        ("registry.test/a:2", "registry.test/a:2"),
        (f"registry.test/a:2@sha256:{'a' * 64}", f"registry.test/a@sha256:{'a' * 64}"),
        ("no name at all", "no name at all"),
    ],
)
def test_gi2_names_are_compared_in_full(name: str, full: str) -> None:
    assert full_reference(name) == full


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["", "/ima\0ges"])
async def test_a_place_that_cannot_be_one_is_an_error_like_others(place: str) -> None:
    class Odd(Runtime):
        async def image_fs_info(self) -> v1.ImageFsInfoResponse:
            found = v1.FilesystemIdentifier(mountpoint=place)
            return v1.ImageFsInfoResponse(image_filesystems=[v1.FilesystemUsage(fs_id=found)])

    disk = ImageFilesystem(Odd())
    with pytest.raises(OSError, match="does not say where it keeps images"):
        await disk.usage()
    assert await disk.used_bytes() is None
