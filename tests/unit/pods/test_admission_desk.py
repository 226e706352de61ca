"""Pods that wait to be admitted (docs/behaviour/admission.md, "Waiting", "Preemption")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import pytest
from tests.unit.pods.admission_builders import (
    RULES,
    as_static,
    asking,
    critical,
    make_node,
)
from tests.unit.pods.worker_fakes import A_DATE, FakeLister, FakeStatuses, Rig, running

from nodeagent.api import Pod
from nodeagent.api.node import Node
from nodeagent.kube import ApiError, KubeError, UnreachableError
from nodeagent.model import PodUID, UpdateType
from nodeagent.pods.admission_desk import AdmissionDesk, no_server
from nodeagent.pods.handlers import HandlerHooks, PodHandlers
from nodeagent.pods.housekeeping import Housekeeping, HousekeepingHooks
from nodeagent.pods.manager import PodManager
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio

replace = msgspec.structs.replace
WEB = PodUID("uid-web")
SSD = {"disk": "ssd"}


@dataclass
class House:
    """A desk, handlers and housekeeping on real workers."""

    rig: Rig
    alone: bool = False
    node: Node | None = field(default_factory=make_node)
    told: Node | None = None
    """What the API server says of the node."""
    trouble: list[KubeError] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    manager: PodManager = field(default_factory=PodManager)

    def __post_init__(self) -> None:
        sources = SourcesReady(lambda: {"api"}, lambda: {"api"})
        sources.seen("api")
        self.desk = AdmissionDesk(
            RULES,
            node=lambda: self.node,
            ask=no_server if self.alone else self._ask,
            runs_here=lambda pod: pod.status.phase == "Running",
            kill=self.rig.workers.kill_pod_now,
            record=self.rig._record,
            journal=self.rig.journal,
            metrics=self.rig.metrics,
        )
        self.handlers = PodHandlers(
            self.manager,
            self.rig.workers,
            self.rig.queue,
            self.rig.cache,
            self.statuses,
            sources,
            HandlerHooks(
                wake_housekeeping=lambda: None,
                remove_dead=lambda _uid, _container: True,
                admit=self.desk,
                record=self.rig._record,
            ),
            journal=self.rig.journal,
            metrics=self.rig.metrics,
        )
        self.desk.again = self.handlers.admit_again
        self.keeping = Housekeeping(
            self.manager,
            self.rig.workers,
            FakeLister(),
            self.statuses,
            sources,
            HousekeepingHooks(held=lambda: self.handlers.held),
            journal=self.rig.journal,
            metrics=self.rig.metrics,
        )

    async def _ask(self) -> None:
        self.asked_at.append(anyio.current_time())
        await anyio.lowlevel.checkpoint()
        if self.trouble:
            raise self.trouble.pop(0)
        if self.told is not None:
            self.node = self.told

    def add(self, *pods: Pod) -> None:
        self.handlers.handle_pod_additions(pods)

    def rejected(self, pod: Pod | PodUID = WEB) -> str:
        uid = PodUID(pod) if isinstance(pod, str) else PodUID(pod.metadata.uid)
        status = self.statuses.get(uid)
        return "" if status is None else status.reason

    def at_work(self, uid: PodUID = WEB) -> bool:
        return self.rig.workers.is_known(uid)


@asynccontextmanager
async def house(**fields: Any) -> AsyncIterator[House]:
    async with running() as rig, anyio.create_task_group() as tasks:
        made = House(rig, **fields)
        await tasks.start(made.desk.run)
        yield made
        tasks.cancel_scope.cancel()


def choosy() -> Pod:
    return make_pod("web", node_selector=SSD)


# -- asking ----------------------------------------------------------------------------------


async def test_aw1_a_label_that_is_new_is_seen_before_a_pod_is_rejected_for_it() -> None:
    async with house(told=make_node(SSD)) as home:
        home.add(choosy())
        assert home.handlers.held == {WEB}
        assert not home.at_work()
        await anyio.sleep(0.1)
        assert home.at_work()
        assert home.rig.syncer.last("sync", WEB).update_type is UpdateType.CREATE
        assert not home.handlers.held
        assert len(home.asked_at) == 1


async def test_aw1_what_the_server_says_is_the_last_word() -> None:
    async with house(told=make_node()) as home:
        home.add(choosy())
        await anyio.sleep(0.1)
        assert home.rejected() == "NodeAffinity"
        assert not home.at_work()
        assert not home.handlers.held
        assert home.rig.figure("kubelet_admission_rejections_total", reason="Other") == 1.0
        home.add(choosy())
        await anyio.sleep(0.1)
        assert len(home.asked_at) == 2, "each time a pod comes the server is asked anew"


async def test_aw1_one_question_is_enough_for_all_that_wait() -> None:
    async with house(told=make_node(SSD)) as home:
        home.add(choosy(), make_pod("db", node_selector=SSD))
        await anyio.sleep(0.1)
        assert len(home.asked_at) == 1
        assert home.at_work()
        assert home.at_work(PodUID("uid-db"))


@pytest.mark.parametrize(
    "trouble",
    [UnreachableError("away"), ApiError(503, "", "away"), ApiError(429, "", "busy")],
    ids=str,
)
async def test_aw2_a_server_in_trouble_is_asked_again_and_the_pod_waits(trouble: KubeError) -> None:
    async with house(told=make_node(SSD)) as home:
        home.trouble = [trouble] * 8
        home.add(choosy())
        await anyio.sleep(60)
        assert home.handlers.held == {WEB}
        assert home.rejected() == ""
        pauses = [b - a for a, b in zip(home.asked_at, home.asked_at[1:], strict=False)]
        for pause, least in zip(pauses, (1, 2, 4, 8, 16, 30), strict=False):
            assert least <= pause < 1.5 * least
        await anyio.sleep(200)
        assert home.at_work()


@pytest.mark.parametrize("status", [403, 404])
async def test_aw3_an_answer_that_is_no_node_decides(status: int) -> None:
    async with house() as home:
        home.trouble = [ApiError(status, "", "no")]
        home.add(choosy())
        await anyio.sleep(0.1)
        assert home.rejected() == "NodeAffinity"
        assert len(home.asked_at) == 1


async def test_aw4_ao5_a_node_that_stands_alone_has_nobody_to_ask() -> None:
    async with house(alone=True) as home:
        home.add(as_static(choosy()), as_static(make_pod("idle")))
        await anyio.sleep(0.1)
        assert home.rejected() == "NodeAffinity"
        assert home.at_work(PodUID("uid-idle"))


async def test_ao2_a_node_of_which_nobody_knows_takes_no_pods() -> None:
    async with house(alone=True, node=None) as home:
        home.add(make_pod())
        await anyio.sleep(0.1)
        assert home.rejected() == "InvalidNodeInfo"


# -- while it waits --------------------------------------------------------------------------


async def test_aw6_a_pod_that_changes_is_judged_as_it_is_then() -> None:
    async with house(told=make_node()) as home:
        home.trouble = [UnreachableError("away")]
        home.add(choosy())
        await anyio.sleep(0.1)
        home.handlers.handle_pod_updates([make_pod("web")])
        assert not home.at_work()
        await anyio.sleep(2)
        sync = home.rig.syncer.last("sync", WEB)
        assert sync.pod is not None
        assert sync.pod.spec.node_selector == {}


@pytest.mark.parametrize("way", ["removed", "deleted", "over"])
async def test_aw6_a_pod_that_ends_is_not_held_any_more(way: str) -> None:
    async with house(told=make_node(SSD)) as home:
        home.trouble = [UnreachableError("away")] * 3
        pod = choosy()
        home.add(pod)
        await anyio.sleep(0.1)
        if way == "removed":
            home.handlers.handle_pod_removes([pod])
        elif way == "deleted":
            gone = replace(pod.metadata, deletion_timestamp=A_DATE)
            home.handlers.handle_pod_updates([replace(pod, metadata=gone)])
        else:
            over = replace(pod.status, phase="Succeeded")
            home.handlers.handle_pod_updates([replace(pod, status=over)])
        assert not home.handlers.held
        await anyio.sleep(60)
        assert "sync" not in home.rig.syncer.kinds(WEB)
        assert home.rejected() == ""


async def test_aw7_nothing_starts_a_held_pod() -> None:
    async with house(told=make_node(SSD)) as home:
        home.trouble = [UnreachableError("away")] * 3
        pod = choosy()
        home.add(pod)
        await home.keeping.sweep()
        home.handlers.handle_pod_syncs([pod])
        home.handlers.handle_pod_reconcile([pod])
        home.handlers.handle_pod_updates([pod])
        await anyio.sleep(0.5)
        assert not home.at_work()
        await anyio.sleep(60)
        assert home.at_work()


async def test_aw7_the_mirror_of_a_held_pod_starts_nothing() -> None:
    async with house(told=make_node(SSD)) as home:
        home.trouble = [UnreachableError("away")] * 3
        pod = as_static(choosy())
        home.add(pod)
        mirror = replace(
            pod,
            metadata=replace(
                pod.metadata, uid="mirror", annotations={"kubernetes.io/config.mirror": "x"}
            ),
        )
        home.add(mirror)
        await anyio.sleep(0.5)
        assert not home.at_work()


async def test_ao7_a_pod_that_is_ending_is_not_judged() -> None:
    async with house(told=make_node()) as home:
        pod = choosy()
        home.add(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=A_DATE)))
        await anyio.sleep(1)
        assert home.asked_at == []
        assert home.rejected() == ""
        assert "terminating" in home.rig.syncer.kinds(WEB)


# -- making room -----------------------------------------------------------------------------


async def test_av5_av6_av7_a_critical_pod_starts_when_its_victims_have_ended() -> None:
    async with house() as home:
        low = asking("low", cpu="1500m")
        home.add(low)
        await anyio.sleep(1)
        held = home.rig.syncer.hold("terminating", "uid-low")
        home.add(critical(asking("web", cpu="1")))
        await anyio.sleep(5)
        ending = home.rig.syncer.last("terminating", "uid-low")
        assert ending.status_fn is not None
        shown = ending.status_fn(low.status)
        assert (shown.phase, shown.reason) == ("Failed", "Preempting")
        event = next(e for e in home.rig.events if e.reason == "Preempting")
        assert (event.pod, event.kind) == ("uid-low", "Warning")
        assert event.message == "Preempted in order to admit critical pod"
        assert not home.at_work()
        held.set()
        await anyio.sleep(1)
        assert home.at_work()
        assert home.rig.figure("kubelet_preemptions", preemption_signal="cpu") == 1.0


async def test_av6_a_victim_that_does_not_end_is_given_up() -> None:
    async with house() as home:
        home.add(asking("low", cpu="1500m"))
        await anyio.sleep(1)
        home.rig.syncer.hold("terminating", "uid-low")
        home.add(critical(asking("web", cpu="1")))
        await anyio.sleep(9)
        assert not home.at_work()
        await anyio.sleep(2)
        assert home.at_work()
        assert "ExceededGracePeriod" in [event.reason for event in home.rig.events]
        assert home.rig.figure("kubelet_preemptions", preemption_signal="cpu") is None


async def test_av6_a_victim_that_cannot_even_be_killed_ends_nothing() -> None:
    async with house() as home:
        low = asking("low", cpu="1500m")
        endless = msgspec.structs.replace(low.spec, termination_grace_period_seconds=10**400)
        home.add(msgspec.structs.replace(low, spec=endless))
        await anyio.sleep(1)
        home.add(critical(asking("web", cpu="1")))
        await anyio.sleep(1)
        assert home.at_work()
        home.node = home.told = make_node(SSD)
        other = choosy()
        home.add(msgspec.structs.replace(other, metadata=make_pod("other").metadata))
        await anyio.sleep(1)
        assert home.at_work(PodUID("uid-other"))


async def test_aw5_two_critical_pods_do_not_count_on_the_same_room() -> None:
    async with house() as home:
        home.add(asking("a", cpu="1"), asking("b", cpu="1"))
        await anyio.sleep(1)
        one, two = (critical(asking(name, cpu="900m")) for name in ("one", "two"))
        home.add(one, two)
        await anyio.sleep(5)
        syncer = home.rig.syncer
        ended = [uid for uid in ("uid-a", "uid-b") if "terminating" in syncer.kinds(uid)]
        assert ended == ["uid-a", "uid-b"]
        assert home.at_work(PodUID("uid-one"))
        assert home.at_work(PodUID("uid-two"))


async def test_aw5_the_next_is_judged_anew() -> None:
    async with house() as home:
        home.add(asking("big", cpu="2"))
        await anyio.sleep(1)
        home.add(critical(asking("one", cpu="500m")), critical(asking("two", cpu="500m")))
        await anyio.sleep(5)
        preempted = [e.pod for e in home.rig.events if e.reason == "Preempting"]
        assert preempted == ["uid-big"], "it was enough for both"
        assert home.at_work(PodUID("uid-one"))
        assert home.at_work(PodUID("uid-two"))


async def test_aw6_nothing_more_ends_for_a_pod_that_is_gone() -> None:
    async with house() as home:
        home.add(asking("a", cpu="1"), asking("b", cpu="1"))
        await anyio.sleep(1)
        held = home.rig.syncer.hold("terminating", "uid-a")
        one, two = (critical(asking(name, cpu="900m")) for name in ("one", "two"))
        home.add(one, two)
        await anyio.sleep(1)
        home.handlers.handle_pod_removes([two])
        held.set()
        await anyio.sleep(5)
        assert [e.pod for e in home.rig.events if e.reason == "Preempting"] == ["uid-a"]
        assert home.at_work(PodUID("uid-one"))


async def test_one_pod_that_breaks_admission_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/behaviour/admission.md, "Waiting"."""
    async with house(told=make_node(SSD)) as home:
        decide_again = home.desk.again

        def again(uid: PodUID) -> None:
            if uid == WEB:
                raise ValueError("broken")
            decide_again(uid)

        monkeypatch.setattr(home.desk, "again", again)
        home.add(choosy(), make_pod("db", node_selector=SSD))
        await anyio.sleep(0.1)
        assert home.at_work(PodUID("uid-db"))
        assert "admission_broke" in [record.message for record in caplog.records]
