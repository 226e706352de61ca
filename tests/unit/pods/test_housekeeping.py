"""docs/behaviour/workers.md, "Housekeeping"."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pods.worker_fakes import (
    FakeLister,
    FakeStatuses,
    Rig,
    make_pod,
    mirror_pod,
    running,
    runtime_pod,
    static_pod,
)

from nodeagent.api import Pod, PodStatus
from nodeagent.model import PodUID, SyncError, UpdateType
from nodeagent.pods.handlers import HandlerHooks, PodHandlers
from nodeagent.pods.housekeeping import Housekeeping, HousekeepingHooks, Sweep
from nodeagent.pods.housekeeping_plan import plan_cleanups, runs
from nodeagent.pods.manager import PodManager
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.worker_state import WorkerPhase
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio

CREATE, UPDATE, SYNC, KILL = UpdateType
U1 = PodUID("u1")


@dataclass
class House:
    """Housekeeping and handlers on real workers with fake neighbours."""

    rig: Rig
    lister: FakeLister = field(default_factory=FakeLister)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    manager: PodManager = field(default_factory=PodManager)
    ready: set[str] = field(default_factory=lambda: {"file", "api"})
    purged: list[str] = field(default_factory=list)
    purge_errors: list[Exception] = field(default_factory=list)
    purge_takes: float = 0.0
    sweeps: list[Sweep] = field(default_factory=list)
    collected: list[tuple[float, bool]] = field(default_factory=list)
    sweeper_errors: list[Exception] = field(default_factory=list)
    gc_errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        sources = SourcesReady(lambda: {"file", "api"}, lambda: self.ready)
        for source in ("file", "api"):
            sources.seen(source)
        self.keeping = Housekeeping(
            self.manager,
            self.rig.workers,
            self.lister,
            self.statuses,
            sources,
            HousekeepingHooks(
                purge=self._purge,
                sweepers=(self._break, self._sweep),
                collect_garbage=self._collect,
            ),
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
                wake_housekeeping=self.keeping.wake, remove_dead=lambda uid, container: True
            ),
            journal=self.rig.journal,
            metrics=self.rig.metrics,
        )

    async def _purge(self, uid: PodUID) -> None:
        assert self.rig.workers.is_known(uid)
        await anyio.sleep(self.purge_takes)
        if self.purge_errors:
            raise self.purge_errors.pop(0)
        self.purged.append(uid)

    async def _break(self, sweep: Sweep) -> None:
        if self.sweeper_errors:
            raise self.sweeper_errors.pop(0)

    async def _sweep(self, sweep: Sweep) -> None:
        self.sweeps.append(sweep)

    async def _collect(self, all_sources: bool) -> None:
        if self.gc_errors:
            raise self.gc_errors.pop(0)
        self.collected.append((anyio.current_time(), all_sources))

    async def clean_up(self) -> None:
        """One sweep as the loop's tick asks for it, and all that follows."""
        self.handlers.handle_pod_cleanups()
        await self.rig.settle()


@asynccontextmanager
async def house(**options: object) -> AsyncIterator[House]:
    async with running() as rig:
        built = House(rig, **options)  # type: ignore[arg-type]
        async with anyio.create_task_group() as tg:
            await tg.start(built.keeping.run)
            yield built
            tg.cancel_scope.cancel()


# -- the plan -----------------------------------------------------------------------------


def always(pod: Pod) -> bool:
    return True


def never(pod: Pod) -> bool:
    return False


def test_k3_an_active_pod_that_nobody_works_on_is_created() -> None:
    pods = [make_pod("a", "a"), make_pod("b", "b")]
    plan = plan_cleanups(pods, {PodUID("a")}, {}, always)
    assert plan.create == (pods[1],)
    assert plan_cleanups(pods, set(), {}, never).create == ()


def test_k4_a_deleted_pod_that_is_over_and_unknown_is_ended() -> None:
    over = make_pod(phase="Failed", deleting=True)
    assert plan_cleanups([over], set(), {}, never).end == (over,)
    assert plan_cleanups([over], {U1}, {}, never).end == ()
    assert plan_cleanups([make_pod(deleting=True)], set(), {}, never).end == ()
    assert plan_cleanups([make_pod(phase="Failed")], set(), {}, never).end == ()
    up = {U1: runtime_pod("u1")}
    assert plan_cleanups([over], set(), up, never).end == ()


def test_k5_what_runs_and_nobody_works_on_is_killed() -> None:
    up, down = runtime_pod("up"), runtime_pod("down", up=False)
    assert runs(up)
    assert not runs(down)
    runtime = {pod.uid: pod for pod in (up, down)}
    assert plan_cleanups([], set(), runtime, always).kill == (up,)
    assert plan_cleanups([], {up.uid}, runtime, always).kill == ()


@given(
    st.sets(st.sampled_from("abcdef")),
    st.sets(st.sampled_from("abcdef")),
    st.sets(st.sampled_from("abcdef")),
    st.sets(st.sampled_from("abcdef")),
    st.booleans(),
)
def test_no_wanted_active_pod_is_ever_killed_and_nothing_is_killed_too_early(
    wanted: set[str], known: set[str], up: set[str], active: set[str], all_sources: bool
) -> None:
    pods = [make_pod(uid, uid) for uid in sorted(wanted)]
    runtime = {PodUID(uid): runtime_pod(uid) for uid in up}
    plan = plan_cleanups(
        pods,
        {PodUID(uid) for uid in known},
        runtime if all_sources else None,
        lambda pod: pod.metadata.uid in active,
    )
    created = {pod.metadata.uid for pod in plan.create}
    killed = {pod.uid for pod in plan.kill}
    assert created == (wanted & active) - known
    assert not killed & known
    assert not killed & created
    if all_sources:
        assert killed == up - known - created
    else:
        assert not killed


# -- the service --------------------------------------------------------------------------


async def test_k1_k5_orphans_of_the_runtime_are_killed_and_removed_pods_forgotten() -> None:
    async with house() as home:
        home.lister.put(runtime_pod("stranger", "stranger"))
        home.handlers.handle_pod_additions([make_pod()])
        await home.rig.settle()
        await home.clean_up()
        assert home.rig.syncer.kinds("stranger") == ["runtime"]
        assert home.rig.syncer.kinds("u1") == ["sync"]
        assert home.rig.figure("kubelet_orphaned_runtime_pods_total") == 1.0


async def test_k1_while_a_source_is_silent_its_pods_are_left_alone() -> None:
    async with house(ready={"file"}) as home:
        home.lister.put(runtime_pod("foreign", "foreign"))
        home.handlers.handle_pod_additions([make_pod("a", "a")])
        await home.rig.settle()
        home.manager.remove(make_pod("a", "a"))
        await home.clean_up()
        assert home.lister.calls == 0
        assert home.rig.syncer.kinds("foreign") == []
        assert home.rig.syncer.kinds("a") == ["sync"]
        assert home.sweeps == []
        home.ready.add("api")
        await home.clean_up()
        assert home.rig.syncer.kinds("foreign") == ["runtime"]
        assert home.rig.syncer.kinds("a") == ["sync", "terminating", "terminated"]


async def test_k2_a_manifest_put_back_while_its_pod_ends_starts_again_by_itself() -> None:
    """With a fixed UID: the old pod ends, the new one starts, nobody has to do anything."""
    async with house() as home:
        old, new = static_pod(image="old"), static_pod(image="new")
        home.handlers.handle_pod_additions([old])
        stop = home.rig.syncer.hold("terminating")
        await home.rig.settle()
        home.handlers.handle_pod_removes([old])
        await home.rig.settle()
        home.handlers.handle_pod_additions([new])
        home.statuses.set(new, PodStatus(phase="Failed"))
        for _ in range(5):
            await anyio.sleep(2)
            await home.clean_up()
        assert home.rig.syncer.kinds() == ["sync", "terminating"]
        stop.set()
        await home.rig.settle()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated", "sync"]
        assert home.rig.syncer.last("sync").pod == new
        assert home.rig.syncer.last("sync").update_type is CREATE
        assert home.purged == ["u1"]
        assert home.statuses.get(U1) is None
        assert home.rig.figure("kubelet_restarted_pods_total", static="true") == 1.0


async def test_k2_an_ended_pod_is_remembered_until_nothing_is_left_of_it() -> None:
    async with house() as home:
        home.lister.pods = {U1: runtime_pod("u1", up=False)}
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        home.handlers.handle_pod_removes([static_pod()])
        for _ in range(5):
            await anyio.sleep(2)
            await home.clean_up()
        assert home.rig.workers.is_known(U1)
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        assert home.purged == ["u1"]
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated", "sync"]
        home.handlers.handle_pod_removes([static_pod()])
        await home.rig.settle()
        home.lister.pods = {}
        for _ in range(2):
            await anyio.sleep(2)
            await home.clean_up()
        assert not home.rig.workers.is_known(U1)


async def test_k2_it_starts_again_with_another_source_away() -> None:
    async with house(ready={"file"}) as home:
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        home.handlers.handle_pod_removes([static_pod()])
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated", "sync"]


async def test_k2_it_does_not_start_again_when_it_was_removed_once_more() -> None:
    async with house() as home:
        stop = home.rig.syncer.hold("terminating")
        for _ in range(2):
            home.handlers.handle_pod_additions([static_pod()])
            await home.rig.settle()
            home.handlers.handle_pod_removes([static_pod()])
            await home.rig.settle()
        stop.set()
        await home.rig.settle()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated"]
        assert not home.rig.workers.is_known(U1)


async def test_k2_what_cannot_be_removed_yet_delays_the_new_pod() -> None:
    async with house() as home:
        home.purge_errors.append(SyncError("device busy"))
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        home.handlers.handle_pod_removes([static_pod()])
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated"]
        await home.clean_up()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated", "sync"]


async def test_k2_nothing_starts_under_the_uid_while_the_old_containers_are_removed() -> None:
    async with house(purge_takes=0.5) as home:
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        for image in ("a", "b", "c"):
            home.handlers.handle_pod_removes([static_pod()])
            home.handlers.handle_pod_additions([static_pod(image=image)])
            await home.rig.settle()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated"]
        await anyio.sleep(0.5)
        await home.rig.settle()
        assert home.rig.syncer.kinds() == ["sync", "terminating", "terminated", "sync"]
        assert home.rig.syncer.last("sync").pod == static_pod(image="c")


async def test_k2_a_pod_removed_during_its_purge_is_not_created() -> None:
    async with house(purge_takes=0.5) as home:
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        home.handlers.handle_pod_removes([static_pod()])
        home.handlers.handle_pod_additions([static_pod()])
        await home.rig.settle()
        home.handlers.handle_pod_removes([static_pod()])
        await anyio.sleep(0.5)
        await home.rig.settle()
        assert home.purged == ["u1"]
        assert not home.rig.workers.is_known(U1)


async def test_k3_an_active_pod_without_a_worker_is_created() -> None:
    async with house() as home:
        home.manager.add(make_pod())
        await home.clean_up()
        assert home.rig.syncer.last("sync").update_type is CREATE
        assert home.rig.figure("kubelet_restarted_pods_total", static="") == 1.0


async def test_k4_a_deleted_pod_that_nobody_knows_gets_a_worker_that_says_so() -> None:
    async with house() as home:
        home.manager.add(make_pod(phase="Succeeded", deleting=True))
        await home.clean_up()
        assert home.rig.syncer.kinds() == ["terminated"]


async def test_k5_a_pod_that_was_created_while_the_list_was_on_its_way_is_not_an_orphan() -> None:
    async with house() as home:
        home.lister.put(runtime_pod())
        home.lister.before_answer = lambda: home.handlers.handle_pod_additions([make_pod()])
        await home.clean_up()
        assert home.rig.syncer.kinds() == ["sync"]


async def test_k5_a_pod_that_ended_while_the_list_was_on_its_way_is_not_killed_twice() -> None:
    async with house() as home:
        stop = home.rig.syncer.hold("runtime", "stranger")
        home.lister.put(runtime_pod("stranger", "stranger"))
        await home.clean_up()
        home.lister.takes = 0.5
        home.handlers.handle_pod_cleanups()
        await home.rig.settle()
        stop.set()
        await anyio.sleep(0.6)
        await home.rig.settle()
        assert home.rig.syncer.kinds("stranger") == ["runtime"]


async def test_k6_when_the_runtime_does_not_answer_nothing_is_concluded() -> None:
    async with house() as home:
        home.lister.put(runtime_pod("stranger", "stranger"))
        home.lister.errors.append(Unavailable("connection refused", "ListPodSandbox"))
        home.statuses.stored[PodUID("gone")] = PodStatus()
        await home.clean_up()
        assert home.rig.syncer.calls == []
        assert PodUID("gone") in home.statuses.stored
        assert [r.why for r in home.rig.journal.select() if r.what == "HousekeepingFailed"] == [
            "clean-up: ListPodSandbox: unavailable: connection refused"
        ]
        await home.clean_up()
        assert home.rig.syncer.kinds("stranger") == ["runtime"]


async def test_k6_a_runtime_that_stays_away_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with house() as home:
        for cause in ("refused", "refused", "refused", "reset"):
            home.lister.errors.append(Unavailable(cause, "ListPodSandbox"))
            await home.clean_up()
        await home.clean_up()
        await home.clean_up()
        assert caplog.messages.count("housekeeping_failed") == 2
        assert caplog.messages.count("housekeeping_recovered") == 1


async def test_k7_gauges_show_desired_active_mirror_and_working_pods() -> None:
    async with house() as home:
        home.rig.syncer.hold("terminating", "ending")
        home.rig.syncer.hold("runtime", "stranger")
        home.lister.put(runtime_pod("stranger", "stranger"))
        ending = make_pod("ending", "ending")
        home.handlers.handle_pod_additions(
            [static_pod("s"), mirror_pod("m"), make_pod("a", "a"), ending]
        )
        home.rig.tell(KILL, ending)
        home.manager.remove(ending)
        home.statuses.set(make_pod("a", "a"), PodStatus(phase="Succeeded"))
        await home.clean_up()
        await home.clean_up()
        figure = home.rig.figure
        assert figure("kubelet_desired_pods", static="true") == 1.0
        assert figure("kubelet_desired_pods", static="") == 1.0
        assert figure("kubelet_active_pods", static="true") == 1.0
        assert figure("kubelet_active_pods", static="") == 0.0
        assert figure("kubelet_mirror_pods") == 1.0
        working = {
            (phase, config, static): figure(
                "kubelet_working_pods", lifecycle=phase.value, config=config, static=static
            )
            for phase in (WorkerPhase.SYNC, WorkerPhase.TERMINATING, WorkerPhase.TERMINATED)
            for config, static in (
                ("desired", ""),
                ("desired", "true"),
                ("orphan", ""),
                ("orphan", "true"),
                ("runtime_only", "unknown"),
            )
        }
        assert {cell for cell, number in working.items() if number} == {
            (WorkerPhase.SYNC, "desired", "true"),
            (WorkerPhase.SYNC, "desired", ""),
            (WorkerPhase.TERMINATING, "orphan", ""),
            (WorkerPhase.TERMINATING, "runtime_only", "unknown"),
        }


async def test_k8_statuses_of_nobody_are_dropped_and_those_of_pods_at_work_kept() -> None:
    async with house() as home:
        home.rig.syncer.hold("terminating", "ending")
        home.handlers.handle_pod_additions([static_pod("s"), mirror_pod("m")])
        home.rig.tell(KILL, make_pod("ending", "ending"))
        for uid in ("s", "m", "ending", "gone"):
            home.statuses.stored[PodUID(uid)] = PodStatus()
        await home.clean_up()
        assert home.statuses.stored.keys() == {"s", "m", "ending"}


async def test_k9_sweepers_learn_who_is_nobodys_and_one_that_fails_stops_no_other() -> None:
    async with house() as home:
        home.sweeper_errors.append(OSError("read-only file system"))
        home.lister.put(runtime_pod("up", "up"), runtime_pod("down", "down", up=False))
        home.rig.syncer.hold("runtime", "up")
        home.handlers.handle_pod_additions([static_pod("s"), mirror_pod("m")])
        await home.clean_up()
        sweep = home.sweeps[-1]
        assert sweep == Sweep(
            wanted=frozenset(map(PodUID, ("s", "m"))),
            working=frozenset(map(PodUID, ("s", "up"))),
            in_runtime=frozenset(map(PodUID, ("up", "down"))),
        )
        assert sweep.is_orphan(PodUID("gone"))
        assert not any(sweep.is_orphan(PodUID(uid)) for uid in ("s", "m", "up", "down"))


async def test_k10_a_slow_sweep_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with house() as home:
        home.lister.takes = 1.0
        await home.keeping.sweep()
        assert "housekeeping_slow" not in caplog.messages
        home.lister.takes = 1.5
        await home.keeping.sweep()
        assert "housekeeping_slow" in caplog.messages


async def test_k11_a_sweep_that_hangs_is_given_up_and_the_next_one_starts_over() -> None:
    async with house() as home:
        home.lister.takes = 3600.0
        home.handlers.handle_pod_cleanups()
        await anyio.sleep(61)
        assert any(r.what == "HousekeepingFailed" for r in home.rig.journal.select())
        home.lister.takes = 0.0
        home.lister.put(runtime_pod("stranger", "stranger"))
        await home.clean_up()
        assert home.rig.syncer.kinds("stranger") == ["runtime"]


async def test_several_wakes_make_one_sweep() -> None:
    async with house() as home:
        for _ in range(5):
            home.keeping.wake()
        await home.rig.settle()
        assert home.lister.calls == 1


async def test_k12_garbage_is_collected_every_minute_whatever_becomes_of_it() -> None:
    async with house() as home:
        home.gc_errors.append(Unavailable("connection refused"))
        await anyio.sleep(90)
        home.ready.discard("api")
        await anyio.sleep(100)
        assert home.collected == [(120.0, False), (180.0, False)]


async def test_a_node_without_hooks_cleans_up_too() -> None:
    async with running() as rig:
        lister, statuses = FakeLister(), FakeStatuses()
        sources = SourcesReady(lambda: {"file"}, lambda: {"file"})
        sources.seen("file")
        keeping = Housekeeping(
            PodManager(),
            rig.workers,
            lister,
            statuses,
            sources,
            journal=rig.journal,
            metrics=rig.metrics,
        )
        lister.put(runtime_pod("stranger", "stranger"))
        async with anyio.create_task_group() as tg:
            await tg.start(keeping.run)
            keeping.wake()
            await rig.settle()
            tg.cancel_scope.cancel()
        assert rig.syncer.kinds("stranger") == ["runtime"]


# -- everything together ------------------------------------------------------------------


def uids(names: Iterable[str]) -> set[PodUID]:
    return {PodUID(name) for name in names}


@pytest.mark.parametrize("seed", range(25))
async def test_after_any_changes_exactly_the_wanted_pods_are_at_work(seed: int) -> None:
    """Random adds, edits, removes, errors and delays; then calm: the node converges."""
    import random

    chance = random.Random(seed)
    async with house() as home:
        wanted: dict[str, Pod] = {}
        for _ in range(60):
            uid = chance.choice("abcd")
            pod = static_pod(uid, chance.choice(["web", "shop"]), image=str(chance.random()))
            match chance.randrange(6):
                case 0 | 1 if uid not in wanted:
                    wanted[uid] = pod
                    home.handlers.handle_pod_additions([pod])
                case 2 if uid in wanted:
                    home.handlers.handle_pod_removes([wanted.pop(uid)])
                case 3:
                    kind = chance.choice(["sync", "terminating", "terminated"])
                    home.rig.syncer.fail(kind, SyncError("chaos"), uid=uid)
                case 4:
                    await anyio.sleep(chance.random() * 20)
                case _:
                    await anyio.lowlevel.checkpoint()
            home.handlers.handle_pod_syncs(home.handlers.pods_due())
        for _ in range(120):
            await anyio.sleep(1)
            home.handlers.handle_pod_syncs(home.handlers.pods_due())
            await home.clean_up()
        states = home.rig.workers.states()
        assert states.keys() == uids(wanted)
        by_name: dict[str, set[str]] = {}
        for uid, pod in wanted.items():
            by_name.setdefault(pod.metadata.name, set()).add(uid)
        at_work = {uid for uid, state in states.items() if state.started_at is not None}
        for group in by_name.values():
            assert len(at_work & group) == 1
        assert all(state.phase is WorkerPhase.SYNC for state in states.values())
        for uid in at_work:
            assert home.rig.syncer.last("sync", uid).pod == wanted[uid]
