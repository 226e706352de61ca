"""docs/behaviour/pleg.md as a whole: whatever goes wrong, nothing stale is taken for fresh, and
once the faults are over the cache and whoever follows the events know the truth.
"""

from __future__ import annotations

import random
from dataclasses import replace

import anyio
import pytest
from tests.unit.pleg.pleg_builders import (
    EXITED,
    NOT_READY,
    READY,
    RUNNING,
    UNKNOWN,
    ScriptedLister,
    container,
    make_pod,
    sandbox,
    status_of,
)
from tests.unit.pleg.pleg_ring import Ring, running

from nodeagent.cri.inspection import CallWatch, unwatched
from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.pleg import InspectionError
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio

UIDS = [PodUID(f"u{n}") for n in range(6)]

States = frozenset[tuple[str, str]]


def states(found: RuntimePod | PodRuntimeStatus | None) -> States:
    """What is there and how it is, the same for a list and for an inspection."""
    if found is None:
        return frozenset()
    shown = {c.id: c.state.value for c in found.containers}
    return frozenset([*shown.items(), *((s.id, s.state.value) for s in found.sandboxes)])


class LivingRuntime(ScriptedLister):
    """Inspections tell the present; latencies vary; every change of a pod is remembered."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.history: dict[str, list[tuple[float, States]]] = {
            uid: [(-1.0, frozenset())] for uid in UIDS
        }

    def change(self, uid: PodUID) -> None:
        """Do one thing to one pod."""
        pod, dice = self.pods.get(uid), self.dice
        if pod is None or dice.random() < 0.1:
            self.remove(uid)
            if pod is None:
                name = f"{uid}-{dice.randrange(1000)}"
                self.put(make_pod(uid, container(f"c-{name}", RUNNING), sandbox(f"s-{name}")))
        else:
            kept = [c for c in pod.containers if dice.random() < 0.9]
            flipped = [
                replace(c, state=dice.choice([RUNNING, EXITED, EXITED, UNKNOWN])) for c in kept
            ]
            if dice.random() < 0.3:
                flipped.append(container(f"c-{uid}-{dice.randrange(1000)}", RUNNING))
            boxes = [replace(s, state=dice.choice([READY, NOT_READY])) for s in pod.sandboxes]
            self.put(make_pod(uid, *{c.id: c for c in flipped}.values(), *boxes))
        self.history[uid].append((anyio.current_time(), states(self.pods.get(uid))))

    def since(self, uid: PodUID, time: float) -> set[States]:
        """The states that a pod has had from ``time`` on."""
        past = self.history[uid]
        last_before = [state for at, state in past if at <= time][-1]
        return {last_before} | {state for at, state in past if at >= time}

    async def inspect(
        self,
        pod: RuntimePod,
        watch: CallWatch = unwatched,
        known: PodRuntimeStatus | None = None,
        at_once: int = 1,
    ) -> PodRuntimeStatus:
        self.latency = self.dice.choice([0.0, 0.001, 0.3])
        present = self.pods.get(pod.uid)
        await super().inspect(pod, watch, known, at_once)
        return PodRuntimeStatus(pod.uid) if present is None else status_of(present)


async def break_things(ring: Ring, runtime: LivingRuntime, dice: random.Random) -> None:
    """Sixty changes, and a fault now and then."""
    for _ in range(60):
        await anyio.sleep(dice.choice([0.0, 0.001, 0.05, 0.7]))
        uid = dice.choice(UIDS)
        runtime.change(uid)
        if dice.random() < 0.5:
            ring.pleg.request_relist(uid, "chaos")
        match dice.randrange(12):
            case 0:
                runtime.hang(uid)
            case 1 | 2:
                for gate in runtime.hanging.values():
                    gate.set()
                runtime.hanging.clear()
            case 3:
                runtime.failing_pods[uid] = Unavailable("shim is gone")
            case 4 | 5:
                runtime.failing_pods.clear()
            case 6:
                runtime.failing[dice.choice(["list_pods", "get_pod"])] = Unavailable("down")
            case 7 | 8:
                runtime.failing.clear()


async def worker(ring: Ring, runtime: LivingRuntime, uid: PodUID, dice: random.Random) -> None:
    """Ask for fresh states again and again; never be given one from before the question."""
    while True:
        await anyio.sleep(dice.random())
        asked = anyio.current_time()
        try:
            status = await ring.cache.get_newer_than(uid, asked)
        except InspectionError:
            continue
        assert states(status) in runtime.since(uid, asked)


async def follower(ring: Ring, known: dict[str, States], dice: random.Random) -> None:
    """Look into the cache whenever an event comes, slowly."""
    while True:
        event = await ring.channel.receive()
        known[event.pod_uid] = states(ring.cache.get(event.pod_uid))
        await anyio.sleep(dice.choice([0.0, 0.0, 0.4]))


@pytest.mark.parametrize("seed", range(40))
async def test_after_any_faults_everyone_knows_the_truth_and_nobody_was_deceived(seed: int) -> None:
    """docs/behaviour/pleg.md, all sections."""
    dice = random.Random(seed)
    runtime = LivingRuntime(dice)
    # What the runtime says is believed at once, so that it can be held against the truth.
    ring = Ring(
        dice.choice([1, 2, 1000]),
        runtime,
        concurrency=2,
        inspect_timeout=7.0,
        unknown_patience=0.0,
    )
    known: dict[str, States] = {}
    async with running(ring), anyio.create_task_group() as tg:
        tg.start_soon(follower, ring, known, dice)
        async with anyio.create_task_group() as workers:
            for uid in UIDS:
                workers.start_soon(worker, ring, runtime, uid, dice)
            await break_things(ring, runtime, dice)
            workers.cancel_scope.cancel()
        runtime.failing.clear()
        runtime.failing_pods.clear()
        for gate in runtime.hanging.values():
            gate.set()
        runtime.hanging.clear()
        await anyio.sleep(25.0)
        for uid in UIDS:
            truth = states(runtime.pods.get(uid))
            assert states(ring.cache.get(uid)) == truth
            assert known.get(uid, frozenset()) == truth
        assert ring.pleg.tracked == len(runtime.pods)
        assert len(ring.cache) == len(runtime.pods)
        assert ring.pleg.healthy().cause == ""
        assert runtime.most_per_pod <= 1
        tg.cancel_scope.cancel()
