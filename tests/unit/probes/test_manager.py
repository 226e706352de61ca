"""What is asked when: all probes of a node on virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.unit.probes.probe_fakes import (
    NOW,
    UID,
    Desk,
    pod_status,
    probe,
    probed,
    status,
)

from nodeagent.api import Pod
from nodeagent.model import PodUID, ProbeKind, ProbeResult
from nodeagent.probes.outcome import Outcome, failure, success, unknown
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio

SUCCESS, FAILURE = ProbeResult.SUCCESS, ProbeResult.FAILURE
LIVENESS, READINESS, STARTUP = ProbeKind.LIVENESS, ProbeKind.READINESS, ProbeKind.STARTUP
TYPES = {LIVENESS: "Liveness", READINESS: "Readiness", STARTUP: "Startup"}


@asynccontextmanager
async def at_work(desk: Desk, age: float = 100.0) -> AsyncIterator[Desk]:
    """The manager runs, for so many seconds already."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(desk.manager.run)
        await anyio.sleep(age)
        yield desk
        tasks.cancel_scope.cancel()


def up(desk: Desk, **fields: Any) -> None:
    desk.statuses[UID] = pod_status(status(**fields))


def since(start: float, times: list[float]) -> list[float]:
    return [round(at - start, 3) for at in times]


async def test_bd1_bd2_the_first_tick_is_at_once_and_then_once_a_period() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        start = anyio.current_time()
        desk.manager.add_pod(probed(liveness_probe=probe()))
        await anyio.sleep(35)
        assert since(start, desk.answers.times()) == [0, 10, 20, 30]


async def test_bd1_a_young_agent_spreads_the_first_ticks_over_a_period() -> None:
    async with at_work(Desk(), age=1.0) as desk:
        start = anyio.current_time()
        for n in range(50):
            pod = make_pod(f"p{n}", make_container(liveness_probe=probe()))
            desk.statuses[PodUID(pod.metadata.uid)] = pod_status(status(cid=f"c{n}"))
            desk.manager.add_pod(pod)
        await anyio.sleep(10.01)
        firsts: dict[str, float] = {}
        for at, asked in desk.answers.asked:
            firsts.setdefault(asked.container_id, at)
        times = since(start, list(firsts.values()))
        assert len(times) == 50
        assert sum(at < 5 for at in times) in range(5, 46)


async def test_bd3_an_answer_that_takes_long_is_not_overtaken() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        desk.answers.takes = 25.0
        start = anyio.current_time()
        desk.manager.add_pod(probed(liveness_probe=probe()))
        await anyio.sleep(26)
        desk.answers.takes = 0.0
        await anyio.sleep(29)
        assert desk.answers.most == 1
        assert since(start, desk.answers.times()) == [0, 25, 50]


async def test_bd3_the_periods_go_on_as_before() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        desk.answers.takes = 25.0
        start = anyio.current_time()
        desk.manager.add_pod(probed(liveness_probe=probe()))
        await anyio.sleep(24)
        desk.answers.takes = 1.0
        await anyio.sleep(30)
        assert since(start, desk.answers.times()) == [0, 25, 30, 40, 50]


async def test_bd4_readiness_is_asked_at_once_and_its_periods_begin_anew() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        start = anyio.current_time()
        desk.manager.add_pod(probed(readiness_probe=probe(), liveness_probe=probe()))
        await anyio.sleep(3)
        desk.manager.trigger_readiness(UID, ["main", "nobody"])
        await anyio.sleep(22)
        assert since(start, desk.answers.times(READINESS)) == [0, 3, 13, 23]
        assert since(start, desk.answers.times(LIVENESS)) == [0, 10, 20]


async def test_bd4_while_readiness_is_asked_it_is_asked_again_after_that() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        desk.answers.takes = 2.0
        start = anyio.current_time()
        desk.manager.add_pod(probed(readiness_probe=probe()))
        await anyio.sleep(1)
        desk.manager.trigger_readiness(UID, ["main"])
        desk.manager.trigger_readiness(UID, ["main"])
        await anyio.sleep(12)
        assert since(start, desk.answers.times()) == [0, 2, 12]


async def test_bd5_probes_that_wait_are_no_tasks() -> None:
    async with at_work(Desk()) as desk:
        before = len(asyncio.all_tasks())
        for n in range(100):
            pod = make_pod(f"p{n}", make_container(liveness_probe=probe()))
            desk.statuses[PodUID(pod.metadata.uid)] = pod_status(status(cid=f"c{n}"))
            desk.manager.add_pod(pod)
        await anyio.sleep(5)
        assert desk.manager.count == 100
        assert len(desk.answers.asked) == 100
        assert len(asyncio.all_tasks()) == before


async def test_bd6_questions_that_hang_do_not_delay_the_rest() -> None:
    async with at_work(Desk(total=2)) as desk:
        start = anyio.current_time()
        desk.answers.takes = 60.0
        for n in range(6):
            pod = make_pod(f"p{n}", make_container(liveness_probe=probe()))
            desk.statuses[PodUID(pod.metadata.uid)] = pod_status(status(cid=f"c{n}"))
            desk.manager.add_pod(pod)
        await anyio.sleep(5)
        assert since(start, desk.answers.times()) == [0, 0, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize("started", [NOW, None, NOW - timedelta(days=9999)])
async def test_bd7_the_initial_delay_counts_from_when_it_was_first_seen_running(
    started: datetime | None,
) -> None:
    """Whatever the runtime says of its start."""
    async with at_work(Desk()) as desk:
        up(desk, at=started)
        start = anyio.current_time()
        desk.manager.add_pod(probed(liveness_probe=probe(initial_delay_seconds=15)))
        await anyio.sleep(31)
        assert since(start, desk.answers.times()) == [20, 30]


async def test_bd7_the_initial_delay_goes_on_over_a_restart_of_the_agent() -> None:
    first, second = Desk(), Desk()
    pod = probed(liveness_probe=probe(initial_delay_seconds=125))
    async with at_work(first):
        up(first)
        first.manager.add_pod(pod)
        await anyio.sleep(9)
        saved = json.loads(json.dumps(first.manager.ages.snapshot()))
    second.manager.ages.restore(saved, 0.0)
    async with at_work(second):
        up(second)
        start = anyio.current_time()
        second.manager.add_pod(pod)
        await anyio.sleep(25)
        # It has waited for 109 s when the second begins: its third tick is late enough.
        assert since(start, second.answers.times()) == [20]
    second.manager.remove_pod(UID)
    assert second.manager.ages.snapshot() == {}


async def test_bw1_bw2_regular_containers_and_sidecars_are_probed() -> None:
    check = probe()
    each: dict[str, Any] = {
        "liveness_probe": check,
        "readiness_probe": check,
        "startup_probe": check,
    }
    pod = make_pod(
        "web",
        make_container("a", **each),
        make_container("b"),
        init_containers=(
            make_container("plain", liveness_probe=check),
            make_container("side", restart_policy="Always", **each),
        ),
    )
    async with at_work(Desk()) as desk:
        desk.statuses[UID] = replace(
            pod_status(status("a", "ca", started=False), status("b", "cb")),
            init_container_statuses=(status("plain", "cp"), status("side", "cs")),
        )
        desk.manager.add_pod(pod)
        assert desk.manager.count == 6
        await anyio.sleep(1)
        asked = {(t.container_id, t.kind) for _, t in desk.answers.asked}
        assert asked == {("ca", STARTUP), ("cs", LIVENESS), ("cs", READINESS)}
        paths = {t.address for _, t in desk.answers.asked}
        assert paths == {"10.0.0.1"}


async def test_bw3_probes_follow_the_newest_version_of_the_pod() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        start = anyio.current_time()
        desk.manager.add_pod(probed(liveness_probe=probe(), readiness_probe=probe()))
        await anyio.sleep(1)
        desk.manager.add_pod(probed(liveness_probe=probe(period_seconds=2)))
        assert desk.manager.count == 1
        await anyio.sleep(14)
        # The tick that was planned stands; then the new period counts.
        assert since(start, desk.answers.times(LIVENESS)) == [0, 10, 12, 14]
        assert since(start, desk.answers.times(READINESS)) == [0]


async def test_bw4_only_readiness_goes_on_while_a_pod_ends() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        desk.answers.takes = 5.0
        desk.manager.add_pod(probed(liveness_probe=probe(), readiness_probe=probe()))
        await anyio.sleep(1)
        desk.manager.stop_liveness_and_startup(UID)
        await anyio.sleep(0)
        assert (desk.answers.open, desk.answers.cut) == (1, 1)
        await anyio.sleep(20)
        assert len(desk.answers.times(LIVENESS)) == 1
        assert len(desk.answers.times(READINESS)) == 3


async def test_bw5_an_ended_pod_leaves_nothing() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        desk.manager.add_pod(probed(liveness_probe=probe(), readiness_probe=probe()))
        await anyio.sleep(1)
        assert desk.manager.results.readiness == {"c1": SUCCESS}
        assert desk.manager.pods() == {UID}
        desk.manager.remove_pod(UID)
        assert desk.manager.count == 0
        assert desk.manager.pods() == set()
        assert desk.manager.results.readiness == {}
        assert [s for m in desk.registry.collect() for s in m.samples if "pod" in s.labels] == []
        await anyio.sleep(30)
        assert len(desk.answers.asked) == 2
        desk.manager.remove_pod(UID)


async def test_bt2_the_probes_of_a_pod_that_is_over_end_by_themselves() -> None:
    async with at_work(Desk()) as desk:
        desk.manager.add_pod(probed(liveness_probe=probe()))
        desk.statuses[UID] = pod_status(phase="Succeeded")
        await anyio.sleep(11)
        assert desk.manager.count == 0


async def test_bt8_the_probes_of_a_deleted_pod_end_by_themselves() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        pod = probed(liveness_probe=probe(), readiness_probe=probe())
        pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=NOW))
        desk.manager.add_pod(pod)
        await anyio.sleep(1)
        assert desk.manager.count == 1
        assert desk.manager.results.liveness == {"c1": SUCCESS}


async def test_br2_changes_are_told_once() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        desk.manager.add_pod(probed(readiness_probe=probe(), liveness_probe=probe()))
        await anyio.sleep(31)
        assert desk.results(READINESS) == [SUCCESS]
        assert desk.results(LIVENESS) == []
        desk.answers.answer = failure("no")
        await anyio.sleep(30)
        assert desk.results(READINESS) == [FAILURE]
        told = desk.updates(LIVENESS)
        assert [(u.pod_uid, u.container_id, u.result) for u in told] == [(UID, "c1", FAILURE)]
        records = [(r.what, r.why) for r in desk.journal.select(UID)]
        assert records == [
            ("ReadinessSuccess", "fine"),
            ("ReadinessFailure", "no"),
            ("LivenessFailure", "no"),
        ]


async def test_ba4_a_failed_liveness_is_asked_again_when_the_container_is_another() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        start = anyio.current_time()
        desk.answers.answer = failure("no")
        desk.manager.add_pod(probed(liveness_probe=probe()))
        await anyio.sleep(45)
        assert since(start, desk.answers.times()) == [0, 10, 20]
        assert desk.manager.results.liveness == {"c1": FAILURE}
        up(desk, cid="c2")
        desk.answers.answer = success()
        await anyio.sleep(10)
        assert since(start, desk.answers.times()) == [0, 10, 20, 50]
        assert desk.manager.results.liveness == {"c2": SUCCESS}


async def test_br5_results_outlive_the_agent() -> None:
    first = Desk()
    async with at_work(first) as desk:
        up(desk)
        desk.manager.add_pod(probed(readiness_probe=probe(), liveness_probe=probe()))
        await anyio.sleep(1)
        saved = desk.manager.snapshot()
        await anyio.sleep(30)
        assert desk.manager.snapshot() == saved
    second = Desk()
    second.manager.restore(saved, 0.0)
    assert second.manager.results.readiness == {"c1": SUCCESS}
    assert second.manager.pods() == {UID}
    async with at_work(second) as desk:
        up(desk)
        desk.answers.answer = failure("no")
        desk.manager.add_pod(probed(readiness_probe=probe()))
        await anyio.sleep(15)
        assert desk.manager.results.readiness == {"c1": SUCCESS}
        assert desk.results(READINESS) == []
        await anyio.sleep(10)
        assert desk.results(READINESS) == [FAILURE]


@pytest.mark.parametrize("saved", [[], {"u": 1}, {"u": {"c": {"liveness": ["x", "dead"]}}}])
async def test_br5_a_checkpoint_that_makes_no_sense_is_refused_whole(saved: Any) -> None:
    desk = Desk()
    good = {"v": {"c": {"liveness": ["y", "failure"]}}}
    with pytest.raises((AttributeError, TypeError, ValueError)):
        desk.manager.restore({**good, **saved} if isinstance(saved, dict) else saved, 0.0)
    assert desk.manager.pods() == set()


@pytest.mark.parametrize("kind", ProbeKind)
async def test_be1_be5_be6_failures_are_told_and_counted(kind: ProbeKind) -> None:
    """probes.md, BE1, BE5, BE6; events.md, EV56."""
    fields: dict[str, Any] = {f"{kind.value}_probe": probe()}
    async with at_work(Desk()) as desk:
        up(desk, started=kind is not STARTUP)
        desk.answers.answer = failure("it is ill")
        desk.answers.takes = 0.25
        desk.manager.add_pod(probed(**fields))
        await anyio.sleep(11)
        name = TYPES[kind]
        told = ("Unhealthy", f"{name} probe failed: it is ill", "spec.containers{main}")
        assert desk.events.said == [told] * 2
        short = {"probe_type": name, "container": "main", "pod": "web", "namespace": "default"}
        labels = {**short, "result": "failed", "pod_uid": UID}
        assert desk.sample("prober_probe_total", **labels) == 2
        assert desk.sample("prober_probe_total", **{**labels, "result": "unknown"}) is None
        assert desk.sample("prober_probe_duration_seconds_count", **short) == 2
        assert desk.sample("prober_probe_duration_seconds_sum", **short) == pytest.approx(0.5)


async def test_ba3_be2_a_probe_that_cannot_be_made_is_tried_three_times() -> None:
    """events.md, EV56."""
    async with at_work(Desk()) as desk:
        up(desk)
        desk.answers.answer = unknown("no runtime")
        desk.manager.add_pod(probed(liveness_probe=probe(failure_threshold=1)))
        await anyio.sleep(1)
        assert len(desk.answers.asked) == 3
        text = "Liveness probe errored and resulted in unknown state: no runtime"
        assert desk.events.said == [("Unhealthy", text, "spec.containers{main}")]
        assert desk.manager.results.liveness == {}
        labels = {"probe_type": "Liveness", "container": "main", "pod": "web"}
        labels |= {"namespace": "default", "result": "unknown", "pod_uid": UID}
        assert desk.sample("prober_probe_total", **labels) == 1


async def test_be3_a_warning_is_told_and_counts_as_success() -> None:
    """events.md, EV56."""
    async with at_work(Desk()) as desk:
        up(desk)
        desk.answers.answer = Outcome(SUCCESS, "moved", warning=True)
        desk.manager.add_pod(probed(readiness_probe=probe()))
        await anyio.sleep(1)
        told = ("ProbeWarning", "Readiness probe warning: moved", "spec.containers{main}")
        assert desk.events.said == [told]
        assert desk.manager.results.readiness == {"c1": SUCCESS}


async def test_be7_lateness_is_measured() -> None:
    dues: list[float] = []
    async with at_work(Desk(total=1)) as desk:
        up(desk)
        start = anyio.current_time()
        desk.manager.on_probe = dues.append
        desk.answers.takes = 0.2
        desk.manager.add_pod(probed(liveness_probe=probe(), readiness_probe=probe()))
        await anyio.sleep(1)
        assert since(start, dues) == [0, 0]
        assert desk.sample("nodeagent_probe_lateness_seconds_count") == 2
        assert desk.sample("nodeagent_probe_lateness_seconds_sum") == pytest.approx(0.2)


async def test_a_handler_that_breaks_is_no_answer_of_the_container() -> None:
    async with at_work(Desk()) as desk:
        desk.answers.answer = ZeroDivisionError("oops")
        up(desk)
        desk.manager.add_pod(probed(liveness_probe=probe(failure_threshold=1)))
        await anyio.sleep(1)
        assert desk.manager.results.liveness == {}
        assert "ZeroDivisionError" in desk.events.said[0][1]


async def test_an_action_that_nobody_knows_cannot_be_made() -> None:
    async with at_work(Desk()) as desk:
        up(desk)
        pod: Pod = probed(liveness_probe=replace(probe(), exec=None))
        desk.manager.add_pod(pod)
        await anyio.sleep(1)
        assert "no action" in desk.events.said[0][1]
