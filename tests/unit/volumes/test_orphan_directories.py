"""Directories of pods that are gone (docs/behaviour/workers.md, "Housekeeping")."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest
from prometheus_client import CollectorRegistry

from nodeagent.cleanup import CleanUp
from nodeagent.model import PodUID, SyncError
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.metrics import PodMetrics

pytestmark = pytest.mark.anyio


class Volumes:
    """Directories of pods, of which one cannot be removed."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = ["a", "mounted", "wanted", "z"]

    async def pods_on_disk(self) -> list[PodUID]:
        self.asked += 1
        return [PodUID(uid) for uid in self.left]

    async def remove_orphan(self, uid: PodUID) -> bool:
        if uid == "mounted":
            raise SyncError("pods/mounted is not removed: still mounted: /x", reason="Failed")
        self.left.remove(uid)
        return True


def clean_up(volumes: Volumes, registry: CollectorRegistry) -> CleanUp:
    nothing = cast("Any", None)
    return CleanUp(
        runtime=nothing,
        lister=nothing,
        gc=nothing,
        volumes=cast("Any", volumes),
        probes=nothing,
        forget=(),
        metrics=PodMetrics(registry),
    )


async def test_one_that_cannot_be_removed_does_not_keep_the_others() -> None:
    volumes, registry = Volumes(), CollectorRegistry()
    cleanup = clean_up(volumes, registry)
    sweep = Sweep(frozenset({PodUID("wanted")}), frozenset(), frozenset())
    with pytest.raises(SyncError, match="still mounted: /x"):
        await cleanup.directories(sweep)
    assert volumes.left == ["mounted", "wanted"]
    cleaned = "kubelet_orphan_pod_cleaned_volumes"
    assert registry.get_sample_value(cleaned) == 2
    assert registry.get_sample_value(f"{cleaned}_errors") == 1


async def test_the_disk_is_asked_again_when_pods_change_and_once_a_minute() -> None:
    volumes = Volumes()
    volumes.left = ["wanted"]
    cleanup = clean_up(volumes, CollectorRegistry())
    sweep = Sweep(frozenset({PodUID("wanted")}), frozenset(), frozenset())
    for _ in range(3):
        await cleanup.directories(sweep)
    assert volumes.asked == 1
    volumes.left.append("left behind")
    await cleanup.directories(Sweep(sweep.wanted, frozenset(), frozenset({PodUID("x")})))
    assert volumes.left == ["wanted"]
    await cleanup.directories(sweep)
    asked = volumes.asked
    await cleanup.directories(sweep)
    await anyio.sleep(60)
    await cleanup.directories(sweep)
    assert volumes.asked == asked + 1


async def test_the_disk_is_asked_at_each_sweep_while_something_is_left() -> None:
    volumes = Volumes()
    cleanup = clean_up(volumes, CollectorRegistry())
    sweep = Sweep(frozenset({PodUID("wanted")}), frozenset(), frozenset())
    for _ in range(3):
        with pytest.raises(SyncError):
            await cleanup.directories(sweep)
    assert volumes.asked == 3
