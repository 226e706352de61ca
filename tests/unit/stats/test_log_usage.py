"""How much logs take is measured when metrics are asked for (docs/metrics.md)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry

from nodeagent.api import Pod
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
)
from nodeagent.server import Request, metrics_app
from nodeagent.stats.log_usage import MAX_AGE, LogPlace, LogUsage
from nodeagent.testing import make_pod
from nodeagent.wiring.stats import log_places

pytestmark = pytest.mark.anyio


async def test_sizes_of_logs(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    log = tmp_path / "0.log"
    log.write_bytes(b"x" * 70)
    place = LogPlace("u1", "default", "web", "main", str(tmp_path))
    gone = LogPlace("u1", "default", "web", "gone", str(tmp_path / "gone"))
    usage = LogUsage(registry, lambda: [place, gone])
    app = metrics_app(registry, usage.refresh)

    def size(container: str) -> float | None:
        named = {"uid": "u1", "namespace": "default", "pod": "web", "container": container}
        name = "kubelet_container_log_filesystem_used_bytes"
        return registry.get_sample_value(name, named)

    assert size("main") is None, "nobody has asked yet"
    response = await app.answer(Request.of("GET", "/metrics"))
    assert b"kubelet_container_log_filesystem_used_bytes{" in response.body
    assert (size("main"), size("gone")) == (70, 0)
    log.write_bytes(b"x" * 80)
    await anyio.sleep(MAX_AGE + 1)
    await usage.refresh()
    assert size("main") == 80


def test_logs_lie_where_the_names_say(tmp_path: Path) -> None:
    pod: Pod = make_pod("web")

    def details(uid: PodUID) -> PodRuntimeStatus:
        names = ("main", "main", "../..")
        containers = tuple(
            ContainerRuntimeStatus(ContainerID(str(n)), name, ContainerState.EXITED)
            for n, name in enumerate(names)
        )
        return PodRuntimeStatus(uid, containers=containers)

    (place,) = log_places(tmp_path, [pod], details)
    uid = pod.metadata.uid
    assert place == LogPlace(
        uid, "default", "web", "main", str(tmp_path / f"default_web_{uid}/main")
    )
