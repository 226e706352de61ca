"""Directories of pods that are gone (docs/behaviour/workers.md, "Housekeeping")."""

from __future__ import annotations

from typing import Any, cast

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
        self.left = ["a", "mounted", "wanted", "z"]

    async def pods_on_disk(self) -> list[PodUID]:
        return [PodUID(uid) for uid in self.left]

    async def remove_orphan(self, uid: PodUID) -> bool:
        if uid == "mounted":
            raise SyncError("pods/mounted is not removed: still mounted: /x", reason="Failed")
        self.left.remove(uid)
        return True


async def test_one_that_cannot_be_removed_does_not_keep_the_others() -> None:
    volumes, registry, nothing = Volumes(), CollectorRegistry(), cast("Any", None)
    cleanup = CleanUp(
        runtime=nothing,
        lister=nothing,
        gc=nothing,
        volumes=cast("Any", volumes),
        probes=nothing,
        forget=(),
        metrics=PodMetrics(registry),
    )
    sweep = Sweep(frozenset({PodUID("wanted")}), frozenset(), frozenset())
    with pytest.raises(SyncError, match="still mounted: /x"):
        await cleanup.directories(sweep)
    assert volumes.left == ["mounted", "wanted"]
    cleaned = "kubelet_orphan_pod_cleaned_volumes"
    assert registry.get_sample_value(cleaned) == 2
    assert registry.get_sample_value(f"{cleaned}_errors") == 1
