"""docs/behaviour/status.md, "Mirror pods"."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.unit.pods.status_builders import NOW, Clock

from nodeagent.api import ObjectMeta, OwnerReference, Pod, PodStatus
from nodeagent.api.codec import convert
from nodeagent.api.node import Node
from nodeagent.journal import Journal
from nodeagent.kube import ApiError
from nodeagent.model import FullName, PodUID
from nodeagent.model.annotations import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.manager import PodManager, mirrors
from nodeagent.pods.mirror_pods import MirrorPods, ends_under, mirror_of
from nodeagent.pods.worker_state import WorkerState
from nodeagent.testing import ApiStore, StoreClient, make_pod

pytestmark = pytest.mark.anyio

NOBODY: frozenset[PodUID] = frozenset()
SWEEP = Sweep(NOBODY, NOBODY, NOBODY)
NAME = FullName("web-n1_default")


def static(hash_: str = "h1", **spec: Any) -> Pod:
    annotations = {CONFIG_SOURCE: "file", CONFIG_HASH: hash_, "mine": "yes"}
    return make_pod("web-n1", uid=hash_, annotations=annotations, node_name="n1", **spec)


class Cluster:
    """An API server, a manager, and the mirrors of its static pods."""

    def __init__(self) -> None:
        self.store = ApiStore(Clock())
        self.client = StoreClient(self.store)
        self.manager = PodManager()
        self.journal = Journal()
        self.node: Node | None = None
        self.ending: set[str] = set()
        self.heard = True
        self.mirrors = MirrorPods(
            self.client,
            lambda: self.node,
            self.manager,
            ends=self.ending.__contains__,
            heard=lambda: self.heard,
            journal=self.journal,
            jitter=lambda seconds: seconds,
        )

    def register(self) -> None:
        made = self.store.create(Node(metadata=ObjectMeta(name="n1")))
        self.node = convert(made, Node)

    def pods(self) -> list[Pod]:
        return [convert(item, Pod) for item in self.store.all("pods")]

    def watch(self) -> None:
        """The manager hears of what is on the API server now."""
        for mirror in self.manager.get_mirrors():
            self.manager.remove(mirror)
        for pod in self.pods():
            annotations = {**pod.metadata.annotations, CONFIG_SOURCE: "api"}
            self.manager.add(replace(pod, metadata=replace(pod.metadata, annotations=annotations)))

    def count(self, method: str) -> int:
        return self.store.count(method, "/pods")

    async def sync(self, pod: Pod) -> None:
        """What a sync of the pod does, until all is done."""
        self.mirrors.want(pod)
        await self.settled()

    async def settled(self) -> None:
        with anyio.fail_after(300):
            await self.mirrors.drained()

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.mirrors.run)
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.register()
    return found


def test_mp1_a_mirror_is_the_pod_owned_by_its_node() -> None:
    pod = static(host_network=True)
    metadata = replace(
        pod.metadata, resource_version="7", creation_timestamp=NOW, labels={"app": "web"}
    )
    pod = replace(pod, metadata=metadata, status=PodStatus(phase="Pending"))
    body = mirror_of(pod, Node(metadata=ObjectMeta(name="n1", uid="node-uid")))
    assert "status" not in body
    made = convert(body, Pod)
    assert made.spec == pod.spec
    assert made.metadata == ObjectMeta(
        name="web-n1",
        namespace="default",
        labels={"app": "web"},
        annotations={**pod.metadata.annotations, CONFIG_MIRROR: "h1"},
        owner_references=(
            OwnerReference(
                api_version="v1", kind="Node", name="n1", uid="node-uid", controller=True
            ),
        ),
    )


async def test_mp1_a_static_pod_gets_a_mirror(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        (mirror,) = cluster.pods()
        assert mirrors(mirror, pod)
        assert mirror.metadata.uid != pod.metadata.uid
        assert [r.what for r in cluster.journal.select()] == ["MirrorCreated"]


async def test_mp1_other_pods_get_none(cluster: Cluster) -> None:
    pod = make_pod("web", annotations={CONFIG_SOURCE: "api"})
    cluster.manager.add(pod)
    async with cluster.at_work():
        await cluster.sync(pod)
        assert cluster.store.requests == []


async def test_mp2_mirrors_are_made_when_the_node_appears() -> None:
    cluster = Cluster()
    other = {CONFIG_SOURCE: "file", CONFIG_HASH: "h2"}
    pods = [static(), make_pod("other", annotations=other, node_name="n1")]
    for pod in pods:
        cluster.manager.add(pod)
    async with cluster.at_work():
        await cluster.sync(pods[0])
        cluster.node = Node(metadata=ObjectMeta(name="n1"))
        await anyio.sleep(10)
        cluster.node = Node(metadata=ObjectMeta(name="n1", uid="u", deletion_timestamp=NOW))
        await anyio.sleep(10)
        assert cluster.store.requests == []
        cluster.register()
        await anyio.sleep(2)
        await cluster.settled()
        assert sorted(p.metadata.name for p in cluster.pods()) == ["other", "web-n1"]
        await anyio.sleep(60)
        assert cluster.count("POST") == 2


async def test_mp2_whoever_knows_may_say_that_the_node_is_there() -> None:
    cluster = Cluster()
    cluster.manager.add(static())
    async with cluster.at_work():
        cluster.register()
        cluster.mirrors.node_changed()
        began = anyio.current_time()
        await cluster.settled()
        assert anyio.current_time() == began
        assert len(cluster.pods()) == 1


async def test_mp3_a_deleted_mirror_is_made_again(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        (first,) = cluster.pods()
        cluster.store.delete("pods", "web-n1")
        cluster.watch()
        await cluster.sync(pod)
        (second,) = cluster.pods()
        assert second.metadata.uid != first.metadata.uid
        assert second.metadata.deletion_timestamp is None
    delete = next(r for r in cluster.store.requests if r.method == "DELETE")
    assert delete.body["gracePeriodSeconds"] == 0
    assert delete.body["preconditions"] == {"uid": first.metadata.uid}


async def test_mp3_a_changed_pod_gets_a_new_mirror(cluster: Cluster) -> None:
    cluster.manager.add(old := static("h1"))
    async with cluster.at_work():
        await cluster.sync(old)
        cluster.watch()
        cluster.manager.remove(old)
        cluster.manager.add(new := static("h2"))
        await cluster.sync(new)
        (mirror,) = cluster.pods()
        assert mirror.metadata.annotations[CONFIG_MIRROR] == "h2"


async def test_mp4_a_mirror_that_was_defaulted_or_changed_is_left_alone(cluster: Cluster) -> None:
    def default(_resource: str, item: dict[str, Any]) -> None:
        item["spec"]["newField"] = {"a": 1}
        item["metadata"].setdefault("labels", {})["injected"] = "yes"

    cluster.store.mutators.append(default)
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)

        def change(item: dict[str, Any]) -> None:
            item["metadata"]["labels"] = {"by": "hand"}

        cluster.store.edit("pods", "web-n1", change)
        cluster.watch()
        before = len(cluster.store.requests)
        for _ in range(5):
            await cluster.sync(pod)
            await cluster.mirrors.sweep(SWEEP)
            await anyio.sleep(60)
        assert len(cluster.store.requests) == before
        assert cluster.store.get("pods", "web-n1")["spec"]["newField"] == {"a": 1}


async def test_mp5_a_mirror_that_vanished_is_made_again(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        cluster.store.delete("pods", "web-n1", grace=0)
        cluster.watch()
        await cluster.sync(pod)
        assert len(cluster.pods()) == 1


async def test_mp6_a_mirror_that_the_watch_has_not_shown_yet_is_good(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        for _ in range(3):
            await cluster.sync(pod)
        assert len(cluster.pods()) == 1
        assert cluster.mirrors._work.done


async def test_mp6_a_name_that_another_pod_has_is_waited_for(cluster: Cluster) -> None:
    cluster.store.create(make_pod("web-n1", node_name="n1"))
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        cluster.mirrors.want(pod)
        await anyio.sleep(100)
        cluster.store.delete("pods", "web-n1", grace=0)
        await cluster.settled()
        (mirror,) = cluster.pods()
        assert mirrors(mirror, pod)


async def test_mp7_the_mirror_of_a_pod_that_is_gone_goes_when_it_has_stopped(
    cluster: Cluster,
) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        cluster.watch()
        cluster.manager.remove(pod)
        cluster.ending.add(NAME)
        await cluster.mirrors.sweep(SWEEP)
        await cluster.settled()
        assert len(cluster.pods()) == 1
        cluster.ending.clear()
        await cluster.mirrors.sweep(SWEEP)
        await cluster.settled()
        assert cluster.pods() == []


def test_mp7_a_static_pod_stops_from_its_kill_until_nothing_of_it_runs() -> None:
    state = WorkerState(PodUID("u"), NAME, static=True, synced_at=0.0, started_at=1.0)
    stopping = WorkerState(
        PodUID("u"), NAME, static=True, synced_at=0.0, started_at=1.0, terminating_at=2.0
    )
    stopped = WorkerState(
        PodUID("u"),
        NAME,
        static=True,
        synced_at=0.0,
        started_at=1.0,
        terminating_at=2.0,
        terminated_at=3.0,
    )
    unstarted = WorkerState(PodUID("u"), NAME, static=True, synced_at=0.0, terminating_at=2.0)
    other = WorkerState(
        PodUID("u"), NAME, static=False, synced_at=0.0, started_at=1.0, terminating_at=2.0
    )
    for one, ends in (
        (state, False),
        (stopping, True),
        (stopped, False),
        (unstarted, False),
        (other, False),
    ):
        assert ends_under(NAME, {PodUID("u"): one}) is ends
    assert not ends_under(FullName("other_default"), {PodUID("u"): stopping})


async def test_mp8_a_mirror_that_somebody_else_deleted_is_made(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        cluster.store.delete("pods", "web-n1")
        cluster.watch()
        cluster.store.delete("pods", "web-n1", grace=0)
        await cluster.sync(pod)
        (mirror,) = cluster.pods()
        assert mirrors(mirror, pod)


async def test_mp8_where_another_pod_is_nothing_is_made(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        cluster.store.delete("pods", "web-n1")
        cluster.watch()
        cluster.store.delete("pods", "web-n1", grace=0)
        cluster.store.create(make_pod("web-n1", node_name="n1"))
        posts = cluster.count("POST")
        await cluster.sync(pod)
        assert cluster.count("POST") == posts
        assert [p.metadata.annotations for p in cluster.pods()] == [{}]


async def test_mp9_nobody_waits_for_the_server(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        cluster.client.cut()
        cluster.mirrors.want(pod)
        await anyio.sleep(600)
        cluster.client.heal()
        cluster.mirrors.retry_now()
        began = anyio.current_time()
        await cluster.settled()
        assert anyio.current_time() == began
        assert len(cluster.pods()) == 1


async def test_mp9_a_mirror_that_is_refused_is_tried_again(cluster: Cluster) -> None:
    cluster.manager.add(pod := static())
    cluster.store.refuse("POST", "/pods", ApiError(403, "Forbidden", "policy"), 3)
    async with cluster.at_work():
        began = anyio.current_time()
        await cluster.sync(pod)
        assert anyio.current_time() - began == pytest.approx(1 + 2 + 4)
        assert len(cluster.pods()) == 1


async def test_mp11_a_mirror_that_may_be_there_is_not_made(cluster: Cluster) -> None:
    cluster.heard = False
    cluster.manager.add(pod := static())
    async with cluster.at_work():
        await cluster.sync(pod)
        await anyio.sleep(60)
        assert cluster.store.requests == []
        cluster.heard = True
        await anyio.sleep(1.5)
        assert len(cluster.pods()) == 1
