"""Looking, and ending (docs/behaviour/eviction.md, "Local storage")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from prometheus_client import CollectorRegistry

from nodeagent.aio import background
from nodeagent.api import EmptyDirVolumeSource, Pod, PodStatus, Quantity, Volume
from nodeagent.eviction import EvictionManager, EvictionMetrics, EvictionSides, PodUse
from nodeagent.journal import Journal
from nodeagent.model import PodUID, SyncError
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio


def limited(name: str) -> Pod:
    source = EmptyDirVolumeSource(size_limit=Quantity("1k"))
    return make_pod(name, volumes=(Volume(name="v", empty_dir=source),))


@dataclass
class Lab:
    """A node whose pods take what a test says."""

    pods: list[Pod] = field(default_factory=list)
    critical: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    looks: list[str] = field(default_factory=list)
    ended: list[tuple[str, PodStatus]] = field(default_factory=list)
    late: bool = False
    events: list[str] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    async def use_of(self, uid: PodUID, containers: bool) -> PodUse:
        assert not containers
        self.looks.append(uid)
        if uid in self.hangs:
            await anyio.sleep_forever()
        if uid in self.breaks:
            raise RuntimeError(uid)
        return PodUse({"v": self.used.get(uid, 0)})

    async def end(
        self,
        pod: Pod,
        *,
        evict: bool = False,
        grace: int | None = None,
        status_fn: Callable[[PodStatus], PodStatus] | None = None,
    ) -> None:
        assert evict
        assert grace == 1
        assert status_fn is not None
        self.ended.append((pod.metadata.uid, status_fn(PodStatus(phase="Running"))))
        if self.late:
            raise SyncError("it still runs", reason="ExceededGracePeriod")

    def record(self, pod: Pod, kind: str, reason: str, text: str) -> None:
        self.events.append(f"{pod.metadata.name} {kind} {reason} {text}")

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        sides = EvictionSides(
            pods=lambda: self.pods,
            is_critical=lambda pod: pod.metadata.name in self.critical,
            use_of=self.use_of,
            end=self.end,
            record=self.record,
        )
        manager = EvictionManager(sides, Journal(), EvictionMetrics(self.registry))
        async with background() as tasks:
            await tasks.start(manager.run)
            yield


async def test_el1_el6_a_pod_that_takes_too_much_is_ended_and_told_why() -> None:
    lab = Lab([limited("small"), limited("big")], used={"uid-small": 1000, "uid-big": 1001})
    async with lab.at_work():
        await anyio.sleep(9)
        assert lab.looks == []
        await anyio.sleep(2)
    text = 'Usage of EmptyDir volume "v" exceeds the limit "1k". '
    [(uid, status)] = lab.ended
    assert uid == "uid-big"
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", text)
    assert status.conditions == ()
    assert lab.events == [f"big Warning Evicted {text}"]
    labels = {"eviction_signal": "emptydirfs.limit"}
    assert lab.registry.get_sample_value("kubelet_evictions", labels) == 1


async def test_el5_nobody_looks_at_a_pod_without_limits() -> None:
    lab = Lab([make_pod("free", volumes=(Volume(name="v", empty_dir=EmptyDirVolumeSource()),))])
    async with lab.at_work():
        await anyio.sleep(60)
    assert lab.looks == []


async def test_el7_what_the_node_cannot_do_without_stays() -> None:
    lab = Lab([limited("dns")], critical={"dns"}, used={"uid-dns": 5000})
    async with lab.at_work():
        await anyio.sleep(60)
    assert lab.ended == []
    assert lab.looks == []


async def test_el8_one_whose_disk_hangs_or_that_breaks_keeps_nobody_from_theirs() -> None:
    lab = Lab(
        [limited("dead"), limited("odd"), limited("big")],
        hangs={"uid-dead"},
        breaks={"uid-odd"},
        used={"uid-big": 5000},
        late=True,
    )
    async with lab.at_work():
        await anyio.sleep(35)
    assert lab.looks.count("uid-dead") == 1
    assert lab.looks.count("uid-odd") == 3
    assert [uid for uid, _ in lab.ended] == ["uid-big"] * 3
