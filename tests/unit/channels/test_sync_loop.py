"""The sync loop: which input leads to which handler, one at a time, whatever fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.api import ObjectMeta, Pod
from nodeagent.channels import SyncChannels, SyncHandler, SyncLoop, WhenFull
from nodeagent.journal import Journal
from nodeagent.model import (
    PodLifecycleEvent,
    PodLifecycleEventType,
    PodOp,
    PodUID,
    PodUpdate,
    ProbeKind,
    ProbeResult,
    ProbeUpdate,
)

pytestmark = pytest.mark.anyio

Call = tuple[str, object]
UID = PodUID("u-web")


def pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=f"u-{name}"))


class Recorder:
    """A handler that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.known = {UID: pod("web")}
        self.due: Sequence[Pod] = ()
        self.current: set[PodUID] = set()
        self.on_call: Callable[[str], None] = lambda _name: None

    def _note(self, name: str, what: object) -> None:
        self.calls.append((name, what))
        self.on_call(name)

    def handle_pod_additions(self, pods: Sequence[Pod]) -> None:
        self._note("additions", [p.metadata.name for p in pods])

    def handle_pod_updates(self, pods: Sequence[Pod]) -> None:
        self._note("updates", [p.metadata.name for p in pods])

    def handle_pod_removes(self, pods: Sequence[Pod]) -> None:
        self._note("removes", [p.metadata.name for p in pods])

    def handle_pod_reconcile(self, pods: Sequence[Pod]) -> None:
        self._note("reconcile", [p.metadata.name for p in pods])

    def handle_pod_syncs(self, pods: Sequence[Pod]) -> None:
        self._note("syncs", [p.metadata.name for p in pods])

    def handle_pod_cleanups(self) -> None:
        self._note("cleanups", None)

    def source_seen(self, source: str) -> None:
        self._note("seen", source)

    def pods_due(self) -> Sequence[Pod]:
        return self.due

    def pod_by_uid(self, uid: PodUID) -> Pod | None:
        return self.known.get(uid)

    def is_current(self, uid: PodUID) -> bool:
        return uid in self.current

    def unnamed_pod_seen(self, uid: PodUID) -> None:
        self._note("unnamed", uid)

    def container_died(self, uid: PodUID, container_id: str) -> None:
        self._note("died", (uid, container_id))

    def probe_changed(self, update: ProbeUpdate) -> None:
        self._note("probe", (update.kind, update.result))


class Ring:
    """A running loop around a recorder."""

    def __init__(self, *, sync_period: float = 1e6, housekeeping_period: float = 1e6) -> None:
        self.handler = Recorder()
        self.channels = SyncChannels()
        self.journal = Journal()
        checked: SyncHandler = self.handler
        self.loop = SyncLoop(
            checked,
            self.channels,
            sync_period=sync_period,
            housekeeping_period=housekeeping_period,
            journal=self.journal,
        )

    async def calls(self) -> list[Call]:
        """What was called since the last time."""
        await anyio.wait_all_tasks_blocked()
        calls = list(self.handler.calls)
        self.handler.calls.clear()
        return calls


@asynccontextmanager
async def running(ring: Ring) -> AsyncIterator[Ring]:
    try:
        async with anyio.create_task_group() as tg:
            await tg.start(ring.loop.run)
            yield ring
            tg.cancel_scope.cancel()
    finally:
        for channel in ring.channels.all():
            channel.dispose()


@pytest.mark.parametrize(
    ("op", "handler"),
    [
        (PodOp.ADD, "additions"),
        (PodOp.UPDATE, "updates"),
        (PodOp.DELETE, "updates"),
        (PodOp.REMOVE, "removes"),
        (PodOp.RECONCILE, "reconcile"),
    ],
)
async def test_each_operation_has_its_handler_and_then_its_source_is_seen(
    op: PodOp, handler: str
) -> None:
    async with running(Ring()) as ring:
        await ring.channels.config.send(PodUpdate(op, (pod("web"), pod("db")), "file"))
        assert await ring.calls() == [(handler, ["web", "db"]), ("seen", "file")]
        assert [(r.component, r.what, r.pod, r.fields) for r in ring.journal.select()] == [
            ("config", op.value, "u-web", {"source": "file"}),
            ("config", op.value, "u-db", {"source": "file"}),
        ]


async def test_an_event_of_what_the_worker_has_acted_on_already_wakes_nobody() -> None:
    """workers.md, H18."""
    kinds = PodLifecycleEventType
    async with running(Ring()) as ring:
        ring.handler.current = {UID}
        await ring.channels.pleg.send(PodLifecycleEvent(UID, kinds.CONTAINER_STARTED, "c1"))
        assert await ring.calls() == []
        await ring.channels.pleg.send(PodLifecycleEvent(UID, kinds.CONTAINER_DIED, "c1"))
        assert await ring.calls() == [("died", (UID, "c1"))]
        await ring.channels.pleg.send(PodLifecycleEvent(UID, kinds.POD_SYNC))
        assert await ring.calls() == [("syncs", ["web"])]


async def test_an_empty_addition_says_that_the_source_has_spoken() -> None:
    async with running(Ring()) as ring:
        await ring.channels.config.send(PodUpdate(PodOp.ADD, (), "api"))
        assert await ring.calls() == [("additions", []), ("seen", "api")]


async def test_an_update_from_memory_says_nothing_of_its_source() -> None:
    """workers.md, A4."""
    async with running(Ring()) as ring:
        await ring.channels.config.send(PodUpdate(PodOp.ADD, (pod("web"),), "api", heard=False))
        assert await ring.calls() == [("additions", ["web"])]


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (PodLifecycleEventType.CONTAINER_STARTED, [("syncs", ["web"])]),
        (PodLifecycleEventType.CONTAINER_DIED, [("syncs", ["web"]), ("died", (UID, "c1"))]),
        (PodLifecycleEventType.CONTAINER_CHANGED, [("syncs", ["web"])]),
        (PodLifecycleEventType.POD_SYNC, [("syncs", ["web"])]),
        (PodLifecycleEventType.CONTAINER_REMOVED, []),
    ],
)
async def test_pleg_events_sync_their_pod(kind: PodLifecycleEventType, calls: list[Call]) -> None:
    async with running(Ring()) as ring:
        await ring.channels.pleg.send(PodLifecycleEvent(UID, kind, "c1"))
        assert await ring.calls() == calls


async def test_events_of_an_unknown_pod_sync_nothing_but_the_dead_are_cleaned_up() -> None:
    died = PodLifecycleEventType.CONTAINER_DIED
    async with running(Ring()) as ring:
        await ring.channels.pleg.send(PodLifecycleEvent(PodUID("other"), died, "c9"))
        assert await ring.calls() == [("unnamed", "other"), ("died", (PodUID("other"), "c9"))]


@pytest.mark.parametrize("result", ProbeResult)
async def test_only_a_failed_liveness_probe_syncs(result: ProbeResult) -> None:
    async with running(Ring()) as ring:
        await ring.channels.liveness.send(ProbeUpdate(UID, "c1", ProbeKind.LIVENESS, result))
        wanted = [("syncs", ["web"])] if result is ProbeResult.FAILURE else []
        assert await ring.calls() == wanted


@pytest.mark.parametrize("kind", [ProbeKind.READINESS, ProbeKind.STARTUP])
@pytest.mark.parametrize("result", ProbeResult)
async def test_readiness_and_startup_are_noted_and_then_sync(
    kind: ProbeKind, result: ProbeResult
) -> None:
    async with running(Ring()) as ring:
        channels = ring.channels
        channel = channels.readiness if kind is ProbeKind.READINESS else channels.startup
        await channel.send(ProbeUpdate(UID, "c1", kind, result))
        assert await ring.calls() == [("probe", (kind, result)), ("syncs", ["web"])]


async def test_probe_results_of_an_unknown_pod_sync_nothing() -> None:
    async with running(Ring()) as ring:
        gone, failed = PodUID("gone"), ProbeResult.FAILURE
        await ring.channels.liveness.send(ProbeUpdate(gone, "c", ProbeKind.LIVENESS, failed))
        await ring.channels.readiness.send(ProbeUpdate(gone, "c", ProbeKind.READINESS, failed))
        assert await ring.calls() == [("probe", (ProbeKind.READINESS, failed))]


async def test_the_sync_tick_syncs_what_is_due_once_a_second() -> None:
    async with running(Ring(sync_period=1.0)) as ring:
        await anyio.sleep(1.5)
        assert await ring.calls() == []
        ring.handler.due = (pod("web"), pod("db"))
        await anyio.sleep(2)
        assert await ring.calls() == [("syncs", ["web", "db"])] * 2


async def test_housekeeping_is_handed_on_every_period() -> None:
    """Also while a source is silent: housekeeping itself knows what is safe to do then."""
    ring = Ring(housekeeping_period=2.0)
    async with running(ring):
        await anyio.sleep(5)
        assert await ring.calls() == [("cleanups", None)] * 2


async def test_one_item_is_handled_at_a_time() -> None:
    async with running(Ring()) as ring:
        deep, deepest = 0, 0
        changed = PodUpdate(PodOp.UPDATE, (pod("web"),), "file")
        started = PodLifecycleEvent(UID, PodLifecycleEventType.CONTAINER_STARTED, "c")

        def enter(name: str) -> None:
            nonlocal deep, deepest
            deep += 1
            deepest = max(deepest, deep)
            if name == "updates":
                ring.channels.pleg.send_nowait(started)
            deep -= 1

        ring.handler.on_call = enter
        for _ in range(10):
            await ring.channels.config.send(changed)
        names = [name for name, _ in await ring.calls()]
        assert deepest == 1
        assert (names.count("updates"), names.count("syncs")) == (10, 10)


async def test_a_full_channel_does_not_starve_the_others() -> None:
    async with running(Ring()) as ring:
        started = PodLifecycleEventType.CONTAINER_STARTED
        for number in range(500):
            ring.channels.pleg.send_nowait(PodLifecycleEvent(UID, started, f"c{number}"))
        ring.channels.config.send_nowait(PodUpdate(PodOp.ADD, (pod("db"),), "file"))
        names = [name for name, _ in await ring.calls()]
        assert names.index("additions") < 20
        assert names.count("syncs") == 500


async def test_a_failing_handler_stops_neither_its_channel_nor_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(Ring()) as ring:

        def fail(name: str) -> None:
            if name == "additions":
                raise RuntimeError("boom")

        ring.handler.on_call = fail
        await ring.channels.config.send(PodUpdate(PodOp.ADD, (pod("web"),), "file"))
        await ring.channels.config.send(PodUpdate(PodOp.UPDATE, (pod("web"),), "file"))
        calls = await ring.calls()
        # What was not handled does not count as handled: nobody may clean up after it.
        assert calls == [("additions", ["web"]), ("updates", ["web"]), ("seen", "file")]
        failed = [r for r in ring.journal.select() if r.what == "HandlerFailed"]
        assert [(r.component, r.why) for r in failed] == [("loop", "RuntimeError('boom')")]
        (logged,) = caplog.records
        assert logged.getMessage() == "handler_failed"
        assert len(logged.__dict__["fields"]["item"]) <= 200


async def test_the_loop_is_healthy_while_it_turns() -> None:
    ring = Ring(sync_period=1.0)
    assert ring.loop.healthy(1e9) is None
    async with running(ring):
        assert ring.loop.healthy(anyio.current_time() + 1e9) is None
        await anyio.sleep(100.5)
        turned = ring.loop.last_turn
        assert turned is not None
        assert anyio.current_time() - turned == 0.5
    assert ring.loop.healthy(turned + 300) is None
    assert ring.loop.healthy(turned + 300.1) == "sync Loop took longer than expected"


async def test_closing_the_config_channel_ends_the_loop_after_its_last_item() -> None:
    ring = Ring(sync_period=1.0)
    await ring.channels.config.send(PodUpdate(PodOp.ADD, (pod("web"),), "file"))
    ring.channels.config.close()
    with anyio.fail_after(5):
        await ring.loop.run()
    assert ring.handler.calls == [("additions", ["web"]), ("seen", "file")]
    for channel in ring.channels.all():
        channel.dispose()


async def test_cancelling_ends_the_loop() -> None:
    ring = Ring(sync_period=1.0)
    with anyio.move_on_after(10) as scope:
        await ring.loop.run()
    assert scope.cancelled_caught
    for channel in ring.channels.all():
        channel.dispose()


async def test_the_seven_channels_say_what_full_means() -> None:
    channels = SyncChannels()
    wait, coalesce = WhenFull.WAIT, WhenFull.COALESCE
    assert [(c.name, c.capacity, c.when_full) for c in channels.all()] == [
        ("config", 50, wait),
        ("sync", 1, coalesce),
        ("housekeeping", 1, coalesce),
        ("pleg", 1000, coalesce),
        ("liveness", 20, wait),
        ("readiness", 20, wait),
        ("startup", 20, wait),
    ]
    for channel in channels.all():
        channel.dispose()


async def test_a_tick_that_finds_the_last_one_unhandled_is_not_queued() -> None:
    ring = Ring()
    ring.channels.sync.send_nowait(1.0)
    ring.channels.sync.send_nowait(2.0)
    ring.handler.due = (pod("web"),)
    async with running(ring):
        assert await ring.calls() == [("syncs", ["web"])]
        assert ring.channels.sync.stats.coalesced == 1
