"""Probes of pods that are nobody's."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.unit.probes.probe_fakes import UID, Desk, probe, probed

from nodeagent.cleanup import CleanUp
from nodeagent.pods.housekeeping import Sweep

pytestmark = pytest.mark.anyio


async def test_bw6_probes_of_pods_that_are_nobodys_end() -> None:
    desk, nothing = Desk(), cast("Any", None)
    cleanup = CleanUp(
        runtime=nothing,
        lister=nothing,
        gc=nothing,
        volumes=nothing,
        probes=desk.manager,
        forget=(),
    )
    desk.manager.add_pod(probed(liveness_probe=probe()))
    desk.manager.restore({"old": {"c": {"readiness": ["c7", "success"]}}}, 0.0)
    everyone = frozenset({UID})
    await cleanup.unprobe(Sweep(everyone, frozenset(), frozenset()))
    assert desk.manager.pods() == {UID}
    assert desk.manager.results.readiness == {}
    await cleanup.unprobe(Sweep(frozenset(), frozenset(), frozenset()))
    assert desk.manager.count == 0
