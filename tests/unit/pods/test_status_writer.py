"""docs/behaviour/status.md, "Sending" and "Deletion"."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.unit.pods.status_builders import (
    NOW,
    Clock,
    condition,
    container_status,
    running,
    waiting,
)

from nodeagent.api import ContainerState, Pod, PodIP, PodStatus
from nodeagent.api.codec import convert, to_builtins
from nodeagent.api.node import Node
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, PatchKind
from nodeagent.model import PodUID
from nodeagent.model.annotations import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.manager import PodManager
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.status_writer import PodStatusWriter
from nodeagent.testing import ApiStore, StoreClient, make_pod

pytestmark = pytest.mark.anyio

T = TypeVar("T")

RUNNING = PodStatus(phase="Running", conditions=(condition("Ready", "True"),))
FAILED = PodStatus(phase="Failed", reason="Error")


def sourced(pod: Pod, source: str, **annotations: str) -> Pod:
    """The pod as its source gives it."""
    given = {**pod.metadata.annotations, CONFIG_SOURCE: source, **annotations}
    return replace(pod, metadata=replace(pod.metadata, annotations=given))


class Cluster:
    """An API server, and the parts around the writer."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = ApiStore(self.clock)
        self.client = StoreClient(self.store)
        self.manager = PodManager()
        self.journal = Journal()
        self.registry = CollectorRegistry()
        self.may_run: set[str] = set()
        self.statuses = StatusManager(
            self.clock,
            lambda uid: self.writer.wake(uid),
            loop_time=anyio.current_time,
            mirror_of=self.manager.get_mirror_of,
        )
        self.writer = PodStatusWriter(
            self.client,
            self.statuses,
            self.manager,
            may_run=self.may_run.__contains__,
            journal=self.journal,
            metrics=PodMetrics(self.registry),
            jitter=lambda seconds: seconds,
        )

    def bind(self, name: str = "web", status: PodStatus | None = None) -> Pod:
        """A pod on the API server that the manager has heard of."""
        made = self.store.create(make_pod(name, node_name="n1"), status=status)
        return self.watch(convert(made, Pod))

    def watch(self, pod: Pod) -> Pod:
        """The manager hears of the pod as it is on the API server now."""
        meta = pod.metadata
        fresh = convert(self.store.get("pods", meta.name, meta.namespace), Pod)
        self.manager.update(found := sourced(fresh, "api"))
        return found

    def watch_all(self) -> None:
        for item in self.store.all("pods"):
            self.watch(convert(item, Pod))

    def status(self, name: str = "web") -> PodStatus:
        return convert(self.store.get("pods", name), Pod).status

    def exists(self, name: str = "web") -> bool:
        return any(item["metadata"]["name"] == name for item in self.store.all("pods"))

    def count(self, method: str) -> int:
        return self.store.count(method, "/pods/")

    @property
    def requests(self) -> tuple[int, int, int]:
        """GETs, PATCHes and DELETEs of pods so far."""
        return self.count("GET"), self.count("PATCH"), self.count("DELETE")

    async def settled(self) -> None:
        with anyio.fail_after(300):
            await self.writer.drained()

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.writer.run)
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def ready(pod: Pod, *, is_ready: bool = True) -> PodStatus:
    return PodStatus(
        phase="Running", conditions=(condition("Ready", "True" if is_ready else "False"),)
    )


def uid(pod: Pod) -> PodUID:
    return PodUID(pod.metadata.uid)


# -- sending -------------------------------------------------------------------------------


async def test_sw1_a_change_is_one_patch(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        assert cluster.requests == (0, 1, 0)
    shown = cluster.status()
    assert (shown.phase, shown.qos_class) == ("Running", "")
    assert [c.type for c in shown.conditions] == ["Ready"]
    assert shown.start_time == NOW
    assert shown.observed_generation == 1
    patch = next(r for r in cluster.store.requests if r.method == "PATCH")
    assert patch.path == "/api/v1/namespaces/default/pods/web/status"
    assert patch.body["metadata"] == {"uid": pod.metadata.uid}


async def test_sw4_somebody_who_always_writes_too_is_not_raced(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = cluster.bind()
    patch = cluster.client.patch
    written = 0

    async def contested(path: str, body: Any, wanted: type[T], **other: Any) -> T:
        nonlocal written
        written += 1

        def meddle(item: dict[str, Any]) -> None:
            item["status"][("reason", "message")[written % 2]] = f"mine {written}"

        await patch(path, body, wanted, **other)
        return convert(cluster.store.edit("pods", "web", meddle, status=True), wanted)

    monkeypatch.setattr(cluster.client, "patch", contested)
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(100)
        assert 5 <= written <= 15
        monkeypatch.undo()
        cluster.watch_all()
        await anyio.sleep(25)
    assert (cluster.status().phase, cluster.status().reason) == ("Running", "")


async def test_sw1_pods_are_written_side_by_side_and_each_in_order(cluster: Cluster) -> None:
    pods = [cluster.bind(f"web{n}") for n in range(30)]
    async with cluster.at_work():
        for pod in pods:
            cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
    assert cluster.requests == (0, 30, 0)
    assert {cluster.status(p.metadata.name).phase for p in pods} == {"Running"}


async def test_sw2_changes_that_come_together_are_sent_together(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        for turn in range(7):
            cluster.statuses.set(pod, ready(pod, is_ready=bool(turn % 2)))
        await cluster.settled()
        assert cluster.requests == (0, 1, 0)
        assert cluster.status().conditions[0].status == "False"


async def test_sw2_what_changes_during_a_request_is_sent_by_one_more_round(
    cluster: Cluster,
) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.client.fall_silent()
        cluster.statuses.set(pod, ready(pod))
        await anyio.sleep(1)
        cluster.statuses.set(pod, ready(pod, is_ready=False))
        cluster.statuses.set(pod, replace(ready(pod), message="newest"))
        cluster.client.heal()
        await cluster.settled()
        assert cluster.status().message == "newest"
        assert cluster.requests == (0, 2, 0)


async def test_sw1_an_answer_serves_until_the_watch_shows_it(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        for turn in range(4):
            cluster.statuses.set(pod, ready(pod, is_ready=bool(turn % 2)))
            await cluster.settled()
        assert cluster.requests == (0, 4, 0)
        cluster.watch(pod)
        await anyio.sleep(21)
        cluster.statuses.set(pod, ready(pod, is_ready=False))
        await cluster.settled()
        assert cluster.status().conditions[0].status == "False"
        assert cluster.requests == (0, 5, 0)


async def test_sw3_after_a_failure_the_pod_is_read_first(cluster: Cluster) -> None:
    pod = cluster.bind()
    cluster.store.refuse("PATCH", "/pods/", ApiError(500, "InternalError", ""))
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        assert cluster.requests == (1, 2, 0)


async def test_sw3_a_reply_that_has_been_overtaken_is_no_harm(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, ready(pod, is_ready=False))
        await cluster.settled()
        cluster.store.delete("pods", "web", grace=0)
        newer = cluster.bind()
        cluster.statuses.set(pod, ready(pod))
        await cluster.settled()
        assert cluster.status() == newer.status
        assert cluster.requests == (1, 2, 0)


async def test_sw4_what_others_changed_is_put_right(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        cluster.watch(pod)

        def meddle(item: dict[str, object]) -> None:
            item["status"] = {"phase": "Pending", "conditions": [{"type": "X", "status": "True"}]}

        cluster.store.edit("pods", "web", meddle, status=True)
        cluster.watch(pod)
        await anyio.sleep(21)
        assert cluster.status().phase == "Running"
        assert [c.type for c in cluster.status().conditions] == ["X", "Ready"]


async def test_sw5_at_rest_nothing_is_asked(cluster: Cluster) -> None:
    pods = [cluster.bind(f"web{n}") for n in range(5)]
    async with cluster.at_work():
        for pod in pods:
            cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        cluster.watch_all()
        before = len(cluster.store.requests)
        await anyio.sleep(3600)
        assert len(cluster.store.requests) == before


async def test_sw5_a_watch_that_lags_is_asked_about_but_nothing_is_written(
    cluster: Cluster,
) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(60)
        assert cluster.count("PATCH") == 1


def on_its_way(state: ContainerState | None = None, *, ip: str = "") -> PodStatus:
    seen = container_status("app", state or waiting("ContainerCreating"))
    return PodStatus(phase="Pending", pod_ip=ip, container_statuses=(seen,))


def begun_again() -> PodStatus:
    status = on_its_way()
    (seen,) = status.container_statuses
    return replace(status, container_statuses=(replace(seen, restart_count=1),))


async def test_sw14_a_pod_that_is_on_its_way_is_told_with_what_comes_next(
    cluster: Cluster,
) -> None:
    fast, slow = cluster.bind("fast"), cluster.bind("slow")
    async with cluster.at_work():
        for pod in (fast, slow):
            cluster.statuses.set(pod, on_its_way())
        await anyio.sleep(0.5)
        assert cluster.requests == (0, 0, 0)
        cluster.statuses.set(fast, ready(fast))
        await anyio.sleep(0.1)
        assert cluster.status("fast").phase == "Running"
        cluster.statuses.set(slow, on_its_way(ip="10.0.0.1"))
        await anyio.sleep(0.5)
        assert cluster.status("slow").pod_ip == "10.0.0.1"
        assert cluster.requests == (0, 2, 0)


@pytest.mark.parametrize(
    "status",
    [
        replace(on_its_way(), phase="Running"),
        replace(on_its_way(), reason="Evicted"),
        replace(on_its_way(), message="it does not fit"),
        begun_again(),
        on_its_way(waiting("ErrImagePull")),
        on_its_way(running()),
    ],
    ids=["phase", "reason", "message", "restart", "waits", "runs"],
)
async def test_sw14_what_else_there_is_to_tell_waits_for_nothing(
    cluster: Cluster, status: PodStatus
) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, status)
        await anyio.sleep(0.1)
        assert cluster.requests == (0, 1, 0)


async def test_sw14_a_deletion_waits_for_nothing(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind())
    async with cluster.at_work():
        cluster.statuses.set(pod, on_its_way())
        await anyio.sleep(0.1)
        assert cluster.requests == (0, 1, 0)


def static_web(hash_: str = "h1") -> Pod:
    pod = make_pod("web-n1", uid="static")
    return sourced(pod, "file", **{CONFIG_HASH: hash_})


def mirror_on(cluster: Cluster, hash_: str = "h1") -> Pod:
    """A mirror on the API server, not yet heard of."""
    try:
        node = cluster.store.get("nodes", "n1", "")
    except ApiError:
        node = cluster.store.create(Node(metadata=replace(make_pod("n1").metadata, namespace="")))
    body = {
        "kind": "Pod",
        "metadata": {
            "name": "web-n1",
            "namespace": "default",
            "annotations": {CONFIG_MIRROR: hash_, CONFIG_HASH: hash_},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": "n1",
                    "uid": node["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "a"}]},
    }
    return convert(cluster.store.create(body), Pod)


async def test_sw6_a_static_pod_is_shown_by_its_mirror(cluster: Cluster) -> None:
    cluster.manager.add(pod := static_web())
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(30)
        assert cluster.store.requests == []
        mirror = mirror_on(cluster)
        cluster.watch(mirror)
        cluster.writer.wake(uid(pod))
        await cluster.settled()
        assert cluster.status("web-n1").phase == "Running"
        assert cluster.requests == (0, 1, 0)


async def test_sw6_the_mirror_of_another_version_is_left_alone(cluster: Cluster) -> None:
    cluster.watch(mirror_on(cluster, "old"))
    cluster.manager.add(pod := static_web())
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(30)
        assert cluster.requests == (0, 0, 0)
        cluster.store.delete("pods", "web-n1", grace=0)
        mirror = mirror_on(cluster)
        cluster.watch(mirror)
        await anyio.sleep(30)
        assert cluster.status("web-n1").phase == "Running"


async def test_sw6_a_new_mirror_gets_everything(cluster: Cluster) -> None:
    cluster.manager.add(pod := static_web())
    async with cluster.at_work():
        for _ in range(2):
            mirror = mirror_on(cluster)
            cluster.watch(mirror)
            cluster.statuses.set(pod, RUNNING)
            cluster.writer.wake(uid(pod))
            await cluster.settled()
            assert cluster.status("web-n1").phase == "Running"
            cluster.manager.remove(cluster.watch(mirror))
            cluster.store.delete("pods", "web-n1", grace=0)


async def test_sw7_a_pod_that_is_gone_is_not_written_to(cluster: Cluster) -> None:
    pod = cluster.bind()
    cluster.store.delete("pods", "web", grace=0)
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        assert cluster.requests == (0, 1, 0)
        cluster.manager.remove(pod)
        await anyio.sleep(60)
        cluster.statuses.set(pod, FAILED)
        await anyio.sleep(60)
        assert cluster.requests == (0, 1, 0)


async def test_sw8_another_pod_of_the_name_is_not_written_to(cluster: Cluster) -> None:
    pod = cluster.bind()
    cluster.store.delete("pods", "web", grace=0)
    cluster.store.create(make_pod("web", node_name="n1"))
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        assert cluster.requests == (1, 1, 0)
        assert cluster.status().phase == "Pending"


async def test_sw9_what_happens_during_an_outage_is_told_afterwards(cluster: Cluster) -> None:
    pods = [cluster.bind(f"web{n}") for n in range(20)]
    async with cluster.at_work():
        cluster.client.cut()
        for pod in pods:
            cluster.statuses.set(pod, ready(pod, is_ready=False))
        await anyio.sleep(300)
        for pod in pods:
            cluster.statuses.set(pod, ready(pod))
        cluster.client.heal()
        await cluster.settled()
        for pod in pods:
            assert cluster.status(pod.metadata.name).conditions[0].status == "True"
        assert cluster.statuses.refused == 0


async def test_sw9_one_request_tries_whether_the_server_is_back(cluster: Cluster) -> None:
    pods = [cluster.bind(f"web{n}") for n in range(20)]
    async with cluster.at_work():
        cluster.store.refuse("*", "/pods/", ApiError(503, "ServiceUnavailable", "no"), 10**6)
        for pod in pods:
            cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(1 + 2 + 4 + 8 + 10 + 10 + 0.5)
        # Ten were under way when it began, then one at a time: after 1, 3, 7, 15, 25, 35 s.
        assert sum(cluster.requests) == 10 + 6


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_sw9_a_server_that_wants_time_gets_it(cluster: Cluster, status: int) -> None:
    pod = cluster.bind()
    error = ApiError(status, "Busy", "later", retry_after=42.0)
    cluster.store.refuse("PATCH", "/pods/", error)
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(41)
        assert cluster.requests == (0, 1, 0)
        await cluster.settled()
        assert cluster.requests == (1, 2, 0)
        assert cluster.status().phase == "Running"


async def test_sw9_nobody_waits_for_a_back_off_when_the_server_is_back(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.client.cut()
        cluster.statuses.set(pod, RUNNING)
        await anyio.sleep(100)
        cluster.client.heal()
        began = anyio.current_time()
        cluster.writer.retry_now()
        await cluster.settled()
        assert anyio.current_time() == began


async def test_sw10_a_pod_that_cannot_be_written_does_not_hold_up_others(cluster: Cluster) -> None:
    bad, good = cluster.bind("bad"), cluster.bind("good")
    cluster.store.refuse("PATCH", "/pods/bad", ApiError(422, "Invalid", "no such phase"), 3)
    async with cluster.at_work():
        began = anyio.current_time()
        cluster.statuses.set(bad, RUNNING)
        cluster.statuses.set(good, RUNNING)
        await anyio.sleep(0.5)
        assert cluster.status("good").phase == "Running"
        cluster.statuses.set(bad, replace(RUNNING, message="again"))
        await cluster.settled()
        assert anyio.current_time() - began == pytest.approx(1 + 2)
        assert cluster.status("bad").message == "again"


class Older(StoreClient):
    """Speaks to a server that does not know of observedGeneration."""

    async def patch(
        self,
        path: str,
        patch: Mapping[str, Any] | list[Any],
        wanted: type[T],
        *,
        kind: PatchKind = PatchKind.STRATEGIC,
        timeout: float | None = None,
    ) -> T:
        assert isinstance(patch, Mapping)
        known = {k: v for k, v in patch["status"].items() if k != "observedGeneration"}
        body = {**patch, "status": known}
        return await super().patch(path, body, wanted, kind=kind, timeout=timeout)


async def test_sw11_a_server_that_drops_a_field_is_asked_once_per_change(cluster: Cluster) -> None:
    pod = cluster.bind()
    cluster.writer._client = Older(cluster.store)
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        for _ in range(10):
            await anyio.sleep(10)
            cluster.watch(pod)
        assert cluster.requests == (0, 1, 0)
        await anyio.sleep(600)
        assert cluster.requests == (0, 1, 0)
        cluster.statuses.set(pod, ready(pod, is_ready=False))
        await cluster.settled()
        assert cluster.status().conditions[0].status == "False"


async def test_sw3_what_a_reply_did_not_show_yet_is_written_at_once(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()

        def meddle(item: dict[str, Any]) -> None:
            item["status"]["phase"] = "Pending"

        cluster.store.edit("pods", "web", meddle, status=True)
        cluster.statuses.set(pod, ready(pod, is_ready=False))
        await cluster.settled()
        assert cluster.status().phase == "Running"
        assert cluster.requests == (0, 3, 0)


async def test_sw12_an_end_that_was_withheld_is_told_as_soon_as_it_is_true(
    cluster: Cluster,
) -> None:
    pod = cluster.bind(status=PodStatus(phase="Running"))
    cluster.may_run.add(uid(pod))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        await cluster.settled()
        assert (cluster.status().phase, cluster.status().reason) == ("Running", "")
        cluster.statuses.nudge(uid(pod))
        await cluster.settled()
        assert cluster.status().phase == "Running"
        cluster.may_run.clear()
        cluster.statuses.nudge(uid(pod))
        await cluster.settled()
        assert (cluster.status().phase, cluster.status().reason) == ("Failed", "Error")


async def test_sw12_the_end_of_a_pod_without_worker_is_told_when_all_are_known(
    cluster: Cluster,
) -> None:
    pod = cluster.bind()
    cluster.may_run.add(uid(pod))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        await cluster.settled()
        nobody: frozenset[PodUID] = frozenset()
        await cluster.writer.sweep(Sweep(frozenset({uid(pod)}), frozenset({uid(pod)}), nobody))
        cluster.may_run.clear()
        await cluster.writer.sweep(Sweep(frozenset({uid(pod)}), nobody, nobody))
        await cluster.settled()
        assert cluster.status().phase == "Failed"


async def test_sw13_the_time_until_the_server_has_it_is_measured(cluster: Cluster) -> None:
    pod = cluster.bind()
    cluster.store.refuse("PATCH", "/pods/", ApiError(500, "InternalError", ""))
    name = "kubelet_pod_status_sync_duration_seconds"
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        cluster.writer.wake(uid(pod))
        await cluster.settled()
    assert cluster.registry.get_sample_value(f"{name}_count") == 1.0
    assert cluster.registry.get_sample_value(f"{name}_sum") == 1.0


async def test_what_was_computed_before_the_writer_runs_is_sent_too(cluster: Cluster) -> None:
    pod = cluster.bind()
    cluster.statuses.set(pod, RUNNING)
    async with cluster.at_work():
        await cluster.settled()
        assert cluster.status().phase == "Running"


async def test_statuses_of_pods_that_are_forgotten_are_forgotten(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        cluster.statuses.set(pod, RUNNING)
        await cluster.settled()
        cluster.statuses.remove_orphans(())
        await anyio.sleep(11)
        assert cluster.writer._sent == {}
        assert cluster.writer._since == {}


async def test_sw1_both_addresses_arrive_in_their_order(cluster: Cluster) -> None:
    pod = cluster.bind()
    async with cluster.at_work():
        for first in ("10.0.0.1", "10.0.0.2"):
            ips = (PodIP(ip=first), PodIP(ip="fd00::1"))
            cluster.statuses.set(pod, replace(RUNNING, pod_ip=first, pod_ips=ips))
            await cluster.settled()
            assert cluster.status().pod_ips == ips


# -- deletion ------------------------------------------------------------------------------


def ask_to_delete(cluster: Cluster, pod: Pod) -> Pod:
    cluster.store.delete("pods", pod.metadata.name)
    return cluster.watch(pod)


async def test_sd1_a_pod_goes_when_all_that_it_held_is_released(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind(status=PodStatus(phase="Running")))
    cluster.may_run.add(uid(pod))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        await cluster.settled()
        cluster.may_run.clear()
        cluster.statuses.nudge(uid(pod))
        await cluster.settled()
        assert cluster.status().phase == "Failed"
        cluster.statuses.terminate_pod(pod)
        await cluster.settled()
        assert not cluster.exists()
    delete = next(r for r in cluster.store.requests if r.method == "DELETE")
    assert delete.body["gracePeriodSeconds"] == 0
    assert delete.body["preconditions"] == {"uid": pod.metadata.uid}


async def test_sd1_the_reply_to_the_patch_counts(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind(status=PodStatus(phase="Running")))
    cluster.statuses.set(pod, RUNNING)
    cluster.statuses.terminate_pod(pod)
    async with cluster.at_work():
        await cluster.settled()
        assert cluster.requests == (0, 1, 1)
        assert not cluster.exists()


async def test_sd1_a_pod_whose_end_an_earlier_agent_told_goes_too(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind(status=PodStatus(phase="Running")))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        await cluster.settled()
        cluster.watch(pod)
        assert cluster.status().phase == "Failed"
    again = Cluster()
    again.store, again.client = cluster.store, cluster.client
    again.writer._client = cluster.client
    pod = again.watch(pod)
    again.statuses.terminate_pod(pod)
    async with again.at_work():
        await again.settled()
        assert not again.exists()


async def test_sd1_a_deletion_that_nobody_has_heard_of_yet(cluster: Cluster) -> None:
    pod = cluster.bind(status=PodStatus(phase="Running"))
    cluster.store.delete("pods", "web")
    cluster.statuses.set(pod, FAILED)
    cluster.statuses.terminate_pod(pod)
    async with cluster.at_work():
        await cluster.settled()
        assert not cluster.exists()


async def test_sd2_no_mirror_is_deleted_here(cluster: Cluster) -> None:
    cluster.manager.add(pod := static_web())
    mirror = cluster.watch(mirror_on(cluster))
    ask_to_delete(cluster, mirror)
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        cluster.statuses.terminate_pod(pod)
        await anyio.sleep(30)
        assert cluster.status("web-n1").phase == "Failed"
        assert cluster.count("DELETE") == 0


async def test_sd2_not_while_containers_may_run_or_nobody_wants_it_to_go(
    cluster: Cluster,
) -> None:
    kept, busy = cluster.bind("kept"), cluster.bind("busy")
    ask_to_delete(cluster, busy)
    cluster.may_run.add(uid(busy))
    async with cluster.at_work():
        for pod in (kept, busy):
            cluster.statuses.set(pod, FAILED)
            cluster.statuses.terminate_pod(pod)
        await anyio.sleep(30)
        cluster.watch_all()
        await anyio.sleep(30)
        assert cluster.count("DELETE") == 0


async def test_sd3_a_pod_that_never_started_goes_at_once(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind())
    async with cluster.at_work():
        cluster.statuses.set(pod, PodStatus(phase="Pending"))
        cluster.statuses.terminate_pod(pod)
        began = anyio.current_time()
        await cluster.settled()
        assert anyio.current_time() == began
        assert not cluster.exists()


async def test_sd4_a_pod_with_finalizers_is_deleted_once(cluster: Cluster) -> None:
    made = make_pod("web", node_name="n1")
    made = replace(made, metadata=replace(made.metadata, finalizers=("example.com/hold",)))
    cluster.store.create(made)
    pod = ask_to_delete(cluster, made)
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        cluster.statuses.terminate_pod(pod)
        for _ in range(6):
            await anyio.sleep(10)
            cluster.watch(pod)
        assert cluster.count("DELETE") == 1
        assert cluster.exists()


async def test_sd4_a_deletion_that_fails_is_tried_again(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind())
    cluster.store.refuse("DELETE", "/pods/", ApiError(403, "Forbidden", "no"))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        cluster.statuses.terminate_pod(pod)
        await cluster.settled()
        assert cluster.count("DELETE") == 2
        assert not cluster.exists()


async def test_sd5_somebody_else_was_faster(cluster: Cluster) -> None:
    pod = ask_to_delete(cluster, cluster.bind())
    cluster.store.refuse("DELETE", "/pods/", ApiError(404, "NotFound", "gone"))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        cluster.statuses.terminate_pod(pod)
        await cluster.settled()
        cluster.manager.remove(pod)
        await anyio.sleep(30)
        assert cluster.count("DELETE") == 1


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict")])
async def test_sd5_a_server_that_does_not_know_the_pod_yet_is_asked_again(
    cluster: Cluster, status: int, reason: str
) -> None:
    pod = ask_to_delete(cluster, cluster.bind())
    cluster.store.refuse("DELETE", "/pods/", ApiError(status, reason, "not in my cache"))
    async with cluster.at_work():
        cluster.statuses.set(pod, FAILED)
        cluster.statuses.terminate_pod(pod)
        await cluster.settled()
        assert cluster.exists()
        cluster.watch_all()
        await anyio.sleep(15)
        assert cluster.count("DELETE") == 2
        assert not cluster.exists()


# -- static pods remember --------------------------------------------------------------------


async def test_mp10_a_static_pod_goes_on_from_what_its_mirror_shows(cluster: Cluster) -> None:
    cluster.manager.add(pod := static_web())
    mirror_on(cluster)
    since = NOW - timedelta(hours=1)
    shown = PodStatus(
        phase="Running", start_time=since, conditions=(condition("Ready", "True", since=since),)
    )
    before = cluster.watch(convert(cluster.store.get("pods", "web-n1"), Pod))
    cluster.manager.update(replace(before, status=shown))
    cluster.statuses.set(pod, RUNNING)
    stored = cluster.statuses.get(uid(pod))
    assert stored is not None
    assert stored.start_time == since
    assert stored.conditions[0].last_transition_time == since
    assert cluster.statuses.active_for(uid(pod)) == pytest.approx(3600)


async def test_mp10_a_mirror_that_is_seen_later_is_believed_all_the_same(cluster: Cluster) -> None:
    cluster.manager.add(pod := static_web())
    mirror = mirror_on(cluster)
    since = NOW - timedelta(hours=1)
    told = (
        condition("Ready", "True", since=since),
        condition("Initialized", "False", since=since),
        condition("Foreign", "True", since=since),
    )

    def earlier(item: dict[str, Any]) -> None:
        shown = PodStatus(phase="Running", start_time=since, conditions=told)
        item["status"] = {**to_builtins(shown), "qosClass": "Burstable"}

    cluster.store.edit("pods", "web-n1", earlier, status=True)
    now = (condition("Ready", "True"), condition("Initialized", "True"))
    async with cluster.at_work():
        cluster.statuses.set(pod, PodStatus(phase="Running", conditions=now))
        cluster.watch(mirror)
        cluster.writer.wake(uid(pod))
        await cluster.settled()
    shown = cluster.status("web-n1")
    assert shown.start_time == since
    times = {c.type: c.last_transition_time for c in shown.conditions}
    assert times == {"Ready": since, "Initialized": NOW, "Foreign": since}
    assert cluster.requests == (0, 1, 0)
