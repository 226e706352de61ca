"""docs/behaviour/workers.md, "Handlers" and "Sources"."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import pytest
from msgspec.structs import replace
from tests.unit.pods.worker_fakes import (
    A_DATE,
    FakeStatuses,
    Rig,
    make_pod,
    mirror_pod,
    running,
    seen,
    static_pod,
)

from nodeagent.api import Pod, PodCondition, PodReadinessGate, PodStatus
from nodeagent.channels import SyncHandler
from nodeagent.model import (
    ContainerID,
    ContainerState,
    PodUID,
    ProbeKind,
    ProbeResult,
    ProbeUpdate,
    SyncError,
    UpdateType,
)
from nodeagent.pods.active_pods import is_active
from nodeagent.pods.dead_containers import DeadContainerRemover, containers_to_remove
from nodeagent.pods.handlers import HandlerHooks, PodHandlers
from nodeagent.pods.manager import PodManager
from nodeagent.pods.rejection import Rejection
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.worker_state import view
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions

pytestmark = pytest.mark.anyio

CREATE, UPDATE, SYNC, KILL = UpdateType
EXITED, RUNNING = ContainerState.EXITED, ContainerState.RUNNING
U1 = PodUID("u1")


@dataclass
class Probes:
    said: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def set_container_readiness(self, uid: PodUID, container_id: str, *, ready: bool) -> None:
        self.said.append(("ready", uid, container_id, ready))

    def set_container_startup(self, uid: PodUID, container_id: str, *, started: bool) -> None:
        self.said.append(("started", uid, container_id, started))


@dataclass
class Judge:
    rejected: dict[str, Rejection]
    asked: list[tuple[str, list[str]]]

    def __call__(self, pod: Pod, active: object) -> Rejection | None:
        assert isinstance(active, list)
        self.asked.append((pod.metadata.uid, [p.metadata.uid for p in active]))
        return self.rejected.get(pod.metadata.uid)

    def forget(self, pod: Pod) -> None:
        raise AssertionError(pod)


@dataclass
class Desk:
    """The handlers with fake neighbours, on real workers."""

    rig: Rig
    manager: PodManager = field(default_factory=PodManager)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    probes: Probes = field(default_factory=Probes)
    registered: set[str] = field(default_factory=lambda: {"file", "api"})
    merged: set[str] = field(default_factory=lambda: {"file", "api"})
    woken: int = 0
    removed: list[tuple[str, str]] = field(default_factory=list)
    room: int = 50
    kept: int = 1
    overdue: set[str] = field(default_factory=set)
    rejected: dict[str, Rejection] = field(default_factory=dict)
    asked: list[tuple[str, list[str]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sources = SourcesReady(lambda: self.registered, lambda: self.merged)
        hooks = HandlerHooks(
            wake_housekeeping=self._wake,
            remove_dead=self._remove,
            admit=Judge(self.rejected, self.asked),
            record=self.rig._record,
            probes=self.probes,
            past_deadline=lambda pod: pod.metadata.uid in self.overdue,
            dead_kept=lambda: self.kept,
            qos_class=lambda _pod: "Burstable",
            status_wanted=self.shown.append,
        )
        self.handlers = PodHandlers(
            self.manager,
            self.rig.workers,
            self.rig.queue,
            self.rig.cache,
            self.statuses,
            self.sources,
            hooks,
            journal=self.rig.journal,
            metrics=self.rig.metrics,
        )
        for source in ("file", "api"):
            self.handlers.source_seen(source)

    def _wake(self) -> None:
        self.woken += 1

    def _remove(self, uid: PodUID, container_id: ContainerID) -> bool:
        if len(self.removed) >= self.room:
            return False
        self.removed.append((uid, container_id))
        return True

    def phase(self, uid: str) -> str:
        state = self.rig.workers.state(PodUID(uid))
        return "none" if state is None else state.phase.value


def test_the_handlers_are_what_the_sync_loop_calls() -> None:
    handler: type[SyncHandler] = PodHandlers
    assert handler is PodHandlers


async def test_h1_additions_are_stored_and_created_oldest_first() -> None:
    async with running() as rig:
        desk = Desk(rig)
        young = make_pod("young", "young", created=A_DATE + timedelta(days=1))
        old = make_pod("old", "old", created=A_DATE)
        manifest = static_pod("manifest", "manifest")
        desk.handlers.handle_pod_additions([young, old, manifest])
        assert desk.manager.get_pods() == [manifest, old, young]
        assert desk.handlers.pod_by_uid(PodUID("old")) is old
        await rig.settle()
        assert [(c.uid, c.update_type) for c in rig.syncer.calls] == [
            ("manifest", CREATE),
            ("old", CREATE),
            ("young", CREATE),
        ]
        assert rig.figure("kubelet_containers_per_pod_count_sum") == 3.0


async def test_h2_a_new_mirror_is_an_update_of_its_static_pod() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([static_pod("s")])
        await rig.settle()
        desk.handlers.handle_pod_additions([mirror := mirror_pod("m")])
        await rig.settle()
        made = rig.syncer.last("sync", "s")
        assert (made.update_type, made.mirror) == (UPDATE, mirror)
        assert desk.handlers.pod_by_uid(PodUID("m")) is None


async def test_h2_a_mirror_without_a_static_pod_is_only_stored() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([mirror_pod("m")])
        await rig.settle()
        assert rig.syncer.calls == []
        assert len(desk.manager.get_mirrors()) == 1


async def test_h3_a_pod_that_is_not_admitted_gets_no_worker_and_says_why() -> None:
    async with running() as rig:
        desk = Desk(rig, rejected={"u2": Rejection("OutOfcpu", "not enough cpu")})
        desk.handlers.handle_pod_additions([make_pod("u1", "one"), make_pod("u2", "two")])
        assert desk.asked == [("u1", []), ("u2", ["u1"])]
        assert not rig.workers.is_known(PodUID("u2"))
        assert desk.statuses.stored[PodUID("u2")] == PodStatus(
            qos_class="Burstable",
            phase="Failed",
            reason="OutOfcpu",
            message="Pod was rejected: not enough cpu",
        )
        assert (rig.events[-1].kind, rig.events[-1].reason) == ("Warning", "OutOfcpu")
        assert rig.figure("kubelet_admission_rejections_total", reason="OutOfcpu") == 1.0
        assert desk.handlers.pod_by_uid(PodUID("u2")) is not None


async def test_h4_a_pod_that_ends_or_has_ended_is_not_asked_about() -> None:
    async with running() as rig:
        desk = Desk(rig, rejected={"u1": Rejection("No", ""), "u2": Rejection("No", "")})
        rig.tell(KILL, make_pod("u1"))
        desk.handlers.handle_pod_additions([make_pod("u1"), make_pod("u2", "b", phase="Failed")])
        assert desk.asked == []
        state = rig.workers.state(U1)
        assert state is not None
        assert state.restart_requested
        assert rig.workers.is_known(PodUID("u2"))


async def test_h5_updates_are_stored_and_passed_on_without_a_new_admission() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([static_pod("s")])
        await rig.settle()
        desk.asked.clear()
        desk.handlers.handle_pod_updates([newer := static_pod("s", image="new")])
        await rig.settle()
        assert desk.asked == []
        assert desk.manager.get_by_uid(PodUID("s")) is newer
        assert (rig.syncer.last("sync", "s").pod, rig.syncer.last("sync", "s").update_type) == (
            newer,
            UPDATE,
        )
        desk.handlers.handle_pod_updates([mirror := mirror_pod("m")])
        await rig.settle()
        assert rig.syncer.last("sync", "s").mirror == mirror


async def test_h5_a_graceful_deletion_ends_the_pod() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([make_pod()])
        desk.handlers.handle_pod_updates([make_pod(deleting=True, deletion_grace=4)])
        await rig.settle()
        assert rig.syncer.last("terminating").grace == 4


async def test_h17_a_mirror_that_comes_or_goes_and_a_deletion_wake_the_status_writer() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([static_pod("s"), make_pod("u1", "one")])
        assert desk.shown == []
        desk.handlers.handle_pod_additions([mirror := mirror_pod("m")])
        desk.handlers.handle_pod_removes([mirror])
        assert desk.shown == ["s", "s"]
        desk.handlers.handle_pod_updates([make_pod("u1", "one")])
        assert desk.shown == ["s", "s"]
        desk.handlers.handle_pod_updates([make_pod("u1", "one", deleting=True)])
        assert desk.shown == ["s", "s", "u1"]


async def test_h6_a_removed_pod_is_dropped_and_killed() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([static_pod()])
        await rig.settle()
        desk.handlers.handle_pod_removes([static_pod()])
        await rig.settle()
        assert desk.manager.get_pods() == []
        assert rig.syncer.kinds() == ["sync", "terminating", "terminated"]


async def test_h6_each_source_manages_its_own_pods_while_another_is_silent() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([static_pod("f", "f"), make_pod("a", "a")])
        await rig.settle()
        desk.merged.discard("api")
        assert not desk.sources.all_ready()
        desk.handlers.handle_pod_removes([static_pod("f", "f"), make_pod("a", "a")])
        await rig.settle()
        assert desk.phase("f") == "finished"
        assert desk.phase("a") == "sync"
        assert desk.manager.get_pods() == []
        assert [r.why for r in rig.journal.select("a") if r.what == "RemoveRefused"] == [
            "api has not spoken"
        ]


async def test_h6_a4_a_source_that_takes_back_what_it_remembered_is_heeded_at_once() -> None:
    async with running() as rig:
        desk = Desk(rig)
        sources = SourcesReady(lambda: {"api"}, lambda: desk.merged)
        desk.handlers._sources = sources
        desk.handlers.handle_pod_additions([make_pod("a", "a")])
        await rig.settle()
        assert not sources.ready("api")
        desk.handlers.handle_pod_removes([make_pod("a", "a")])
        await rig.settle()
        assert desk.phase("a") == "finished"


async def test_h7_a_removed_mirror_is_an_update_of_its_static_pod_that_still_carries_it() -> None:
    async with running() as rig:
        desk = Desk(rig)
        mirror = mirror_pod("m")
        desk.handlers.handle_pod_additions([static_pod("s"), mirror])
        await rig.settle()
        desk.handlers.handle_pod_removes([mirror])
        await rig.settle()
        assert rig.syncer.last("sync", "s").mirror == mirror
        desk.handlers.handle_pod_syncs([static_pod("s")])
        await rig.settle()
        assert rig.syncer.last("sync", "s").mirror is None


def gated(ready: str, message: str = "") -> Pod:
    """A pod with one readiness gate that nobody has set."""
    pod = make_pod(phase="Running")
    condition = PodCondition(type="Ready", status=ready, message=message)
    status = replace(pod.status, conditions=(condition,))
    spec = replace(pod.spec, readiness_gates=(PodReadinessGate(condition_type="g"),), containers=())
    return replace(pod, spec=spec, status=status)


async def test_h8_a_ready_condition_that_is_not_what_we_compute_asks_for_a_sync() -> None:
    text = 'corresponding condition of pod readiness gate "g" does not exist.'
    async with running() as rig:
        desk = Desk(rig)
        for pod, syncs in (
            (gated("True"), 1),
            (gated("False", text), 1),
            (gated("False", "else"), 2),
            (replace(gated("True"), status=PodStatus(phase="Running")), 2),
            (make_pod(phase="Running"), 2),
        ):
            desk.handlers.handle_pod_reconcile([pod])
            await rig.settle()
            assert rig.syncer.kinds() == ["sync"] * syncs
            assert desk.manager.get_by_uid(U1) is pod


async def test_h8_a_reconciled_mirror_is_only_stored() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_reconcile([mirror_pod("m")])
        await rig.settle()
        assert rig.syncer.calls == []


async def test_h9_all_dead_containers_of_an_evicted_pod_are_removed() -> None:
    async with running() as rig:
        desk = Desk(rig)
        rig.cache.statuses["u1"] = seen(
            "u1", ("c3", "a", RUNNING), ("c2", "a", EXITED), ("c1", "b", EXITED)
        )
        evicted = make_pod(status=PodStatus(phase="Failed", reason="Evicted"))
        desk.handlers.handle_pod_reconcile([evicted])
        assert desk.removed == [("u1", "c2"), ("u1", "c1")]


async def test_h10_syncs_carry_the_current_mirror_and_mirrors_are_ignored() -> None:
    async with running() as rig:
        desk = Desk(rig)
        mirror = mirror_pod("m")
        desk.handlers.handle_pod_additions([static_pod("s"), mirror])
        await rig.settle()
        desk.handlers.handle_pod_syncs([static_pod("s"), mirror])
        await rig.settle()
        made = rig.syncer.last("sync", "s")
        assert (made.update_type, made.mirror) == (SYNC, mirror)
        assert {call.uid for call in rig.syncer.calls} == {"s"}


async def test_h11_cleanups_wake_housekeeping() -> None:
    desk = Desk(Rig())
    desk.handlers.handle_pod_cleanups()
    assert desk.woken == 1


async def test_h12_pods_are_due_when_the_work_queue_says_so() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([make_pod("a", "a"), make_pod("b", "b")])
        await rig.settle()
        rig.queue.set(PodUID("b"), 5.0)
        assert desk.handlers.pods_due() == ()
        await anyio.sleep(5)
        assert desk.handlers.pods_due() == (make_pod("b", "b"),)
        assert desk.handlers.pods_due() == ()


async def test_h12_a_worker_whose_pod_no_source_wants_looks_again_by_itself() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([static_pod()])
        await rig.settle()
        rig.syncer.fail("terminating", SyncError("StopContainer: deadline exceeded"))
        desk.handlers.handle_pod_removes([static_pod()])
        await rig.settle()
        assert desk.phase("u1") == "terminating"
        await anyio.sleep(10)
        assert desk.handlers.pods_due() == ()
        await rig.settle()
        assert desk.phase("u1") == "finished"


async def test_h12_a_pod_past_its_active_deadline_is_due_until_it_ends() -> None:
    async with running() as rig:
        desk = Desk(rig)
        timed = make_pod(active_deadline=5)
        desk.handlers.handle_pod_additions([timed, make_pod("u2", "b")])
        await rig.settle()
        assert desk.handlers.pods_due() == ()
        desk.overdue |= {"u1", "u2"}
        assert desk.handlers.pods_due() == (timed,)
        rig.tell(KILL, timed)
        assert desk.handlers.pods_due() == ()


async def test_h13_everything_exited_goes_when_the_pods_content_may_go() -> None:
    async with running() as rig:
        desk = Desk(rig)
        rig.cache.statuses["u1"] = seen("u1", ("c2", "a", EXITED), ("c1", "b", EXITED))
        kill = KillOptions(evict=True)
        rig.workers.update_pod(UpdatePodOptions(KILL, make_pod(), kill=kill))
        desk.handlers.container_died(U1, "some-sandbox")
        assert desk.removed == []
        await rig.settle()
        desk.handlers.container_died(U1, "some-sandbox")
        assert desk.removed == [("u1", "c2"), ("u1", "c1")]


async def test_h16_a_pod_that_could_not_be_stopped_is_tried_again_when_something_ended() -> None:
    async with running() as rig:
        desk = Desk(rig)
        pod = make_pod()
        desk.handlers.handle_pod_additions([pod])
        await rig.settle()
        rig.syncer.fail("terminating", SyncError("busy"))
        desk.handlers.handle_pod_removes([pod])
        await rig.settle()
        (failure,) = rig.workers.stop_failures()
        assert (failure.pod, failure.cause, failure.tries) == ("default/web", "busy", 1)
        before = len(rig.syncer.calls)
        desk.handlers.unnamed_pod_seen(U1)
        await rig.settle()
        assert len(rig.syncer.calls) > before
        assert rig.workers.stop_failures() == []


async def test_h16_a_pod_that_could_not_be_looked_at_is_tried_again_when_it_can_be() -> None:
    async with running() as rig:
        desk = Desk(rig)
        pod = make_pod()
        desk.handlers.handle_pod_additions([pod])
        await rig.settle()
        rig.cache.errors.append(SyncError("ContainerStatus: broken"))
        desk.handlers.handle_pod_removes([pod])
        await rig.settle()
        assert rig.syncer.kinds("u1") == ["sync"]
        desk.handlers.unnamed_pod_seen(U1)
        await rig.settle()
        assert rig.syncer.kinds("u1") == ["sync", "terminating", "terminated"]


async def test_h18_a_worker_is_current_when_it_has_acted_on_the_newest_look_and_it_worked() -> None:
    async with running() as rig:
        desk = Desk(rig)
        rig.cache.statuses["u1"] = seen("u1", ("c1", "a", EXITED))
        assert not desk.handlers.is_current(U1)
        desk.handlers.handle_pod_additions([make_pod()])
        await rig.settle()
        assert desk.handlers.is_current(U1)
        rig.cache.statuses["u1"] = seen("u1", ("c2", "a", EXITED))
        assert not desk.handlers.is_current(U1)
        rig.syncer.fail("sync", SyncError("busy"))
        desk.handlers.handle_pod_syncs([make_pod()])
        await rig.settle()
        assert not desk.handlers.is_current(U1)


async def test_h16_a_pod_whose_stop_goes_on_is_left_alone() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([make_pod()])
        await rig.settle()
        desk.handlers.unnamed_pod_seen(U1)
        desk.handlers.unnamed_pod_seen(PodUID("nobody"))
        await rig.settle()
        assert rig.syncer.kinds("u1") == ["sync"]


async def test_h14_one_dead_container_per_name_is_kept() -> None:
    async with running() as rig:
        desk = Desk(rig)
        desk.handlers.handle_pod_additions([make_pod()])
        rig.cache.statuses["u1"] = seen(
            "u1",
            ("a3", "a", EXITED),
            ("b1", "b", EXITED),
            ("a2", "a", EXITED),
            ("a1", "a", EXITED),
        )
        desk.handlers.container_died(U1, "a3")
        assert desk.removed == [("u1", "a2"), ("u1", "a1")]
        desk.handlers.container_died(U1, "the-sandbox")
        assert len(desk.removed) == 2


async def test_h14_more_may_be_kept() -> None:
    """garbage.md, GK8."""
    async with running() as rig:
        desk = Desk(rig, kept=3)
        desk.handlers.handle_pod_additions([make_pod()])
        rig.cache.statuses["u1"] = seen("u1", *((f"a{n}", "a", EXITED) for n in range(5)))
        desk.handlers.container_died(U1, "a0")
        assert desk.removed == [("u1", "a3"), ("u1", "a4")]


async def test_h14_what_does_not_fit_is_left_to_the_next_time() -> None:
    async with running() as rig:
        desk = Desk(rig, room=1)
        desk.handlers.handle_pod_additions([make_pod()])
        rig.cache.statuses["u1"] = seen("u1", *((f"a{n}", "a", EXITED) for n in range(9)))
        desk.handlers.container_died(U1, "a0")
        assert desk.removed == [("u1", "a1")]


def test_h14_nothing_is_chosen_for_an_unknown_container() -> None:
    status = seen("u1", ("a1", "a", EXITED))
    assert containers_to_remove(status, "x", everything=False) == []
    assert containers_to_remove(status, "a1", everything=False) == []
    assert containers_to_remove(status, "a1", everything=False, kept=0) == ["a1"]


async def test_h15_probe_results_are_noted() -> None:
    desk = Desk(Rig())
    for kind, result in (
        (ProbeKind.READINESS, ProbeResult.SUCCESS),
        (ProbeKind.STARTUP, ProbeResult.FAILURE),
        (ProbeKind.LIVENESS, ProbeResult.FAILURE),
    ):
        desk.handlers.probe_changed(ProbeUpdate(U1, "c", kind, result))
    assert desk.probes.said == [("ready", "u1", "c", True), ("started", "u1", "c", False)]


async def test_h15_without_probes_nothing_is_noted() -> None:
    rig = Rig()
    desk = Desk(rig)
    hooks = HandlerHooks(wake_housekeeping=desk._wake, remove_dead=desk._remove)
    handlers = PodHandlers(
        desk.manager,
        rig.workers,
        rig.queue,
        rig.cache,
        desk.statuses,
        desk.sources,
        hooks,
        journal=rig.journal,
        metrics=rig.metrics,
    )
    handlers.probe_changed(ProbeUpdate(U1, "c", ProbeKind.READINESS, ProbeResult.SUCCESS))
    handlers.handle_pod_additions([make_pod()])
    assert rig.workers.is_known(U1)
    assert handlers.pods_due() == ()


def test_a1_a_source_is_ready_once_it_was_merged_and_handled() -> None:
    merged: set[str] = set()
    sources = SourcesReady(lambda: {"file"}, lambda: merged)
    sources.seen("file")
    assert not sources.ready("file")
    merged.add("file")
    assert sources.ready("file")
    assert not sources.ready("api")
    merged.add("api")
    assert not sources.ready("api")


def test_a2_all_are_ready_when_every_registered_one_is() -> None:
    registered = {"file", "http"}
    sources = SourcesReady(lambda: registered, lambda: {"file", "http"})
    sources.seen("file")
    assert not sources.all_ready()
    sources.seen("http")
    assert sources.all_ready()
    registered.add("api")
    assert not sources.all_ready()


def test_a3_a_node_without_sources_is_never_ready() -> None:
    assert not SourcesReady(set, set).all_ready()


@pytest.mark.parametrize(
    ("phase", "computed", "active"),
    [
        ("Pending", None, True),
        ("Running", "Running", True),
        ("Failed", None, False),
        ("Running", "Succeeded", False),
    ],
)
def test_b1_a_pod_is_active_unless_it_is_over(
    phase: str, computed: str | None, active: bool
) -> None:
    status = None if computed is None else PodStatus(phase=computed)
    assert is_active(make_pod(phase=phase), view(None, synced=True), status) is active


async def test_b1_a_pod_that_still_ends_is_active_and_one_that_has_ended_is_not() -> None:
    async with running() as rig:
        gate = rig.syncer.hold("terminating")
        rig.tell(KILL, pod := make_pod())
        await rig.settle()
        assert is_active(pod, rig.workers.view(U1), PodStatus(phase="Failed"))
        gate.set()
        await rig.settle()
        assert not is_active(make_pod(), rig.workers.view(U1), None)


async def test_k13_dead_containers_are_removed_one_by_one_and_a_failure_stops_nothing() -> None:
    removed: list[str] = []

    async def remove(container_id: ContainerID) -> None:
        await anyio.lowlevel.checkpoint()
        if container_id == "stuck":
            raise RuntimeError("device busy")
        removed.append(container_id)

    remover = DeadContainerRemover(remove, capacity=3)
    for container in ("a", "stuck", "b"):
        assert remover.request(U1, ContainerID(container))
    assert not remover.request(U1, ContainerID("c"))
    async with anyio.create_task_group() as tg:
        await tg.start(remover.run)
        await Rig().settle()
        tg.cancel_scope.cancel()
    remover.channel.dispose()
    assert removed == ["a", "b"]


async def test_k13_records_go_when_pods_neither_start_nor_stop_or_after_two_seconds() -> None:
    removed: list[tuple[str, float]] = []
    quiet, began = anyio.Event(), anyio.current_time()

    async def remove(container_id: ContainerID) -> None:
        removed.append((container_id, anyio.current_time() - began))

    remover = DeadContainerRemover(remove, quiet=lambda: quiet.wait())
    remover.request(U1, ContainerID("early"))
    async with anyio.create_task_group() as tg:
        await tg.start(remover.run)
        await anyio.sleep(1.5)
        remover.request(U1, ContainerID("late"))
        await anyio.sleep(1.0)
        quiet.set()
        await anyio.sleep(0.1)
        tg.cancel_scope.cancel()
    remover.channel.dispose()
    assert [name for name, _ in removed] == ["early", "late"]
    assert [when for _, when in removed] == pytest.approx([2.0, 2.5])
