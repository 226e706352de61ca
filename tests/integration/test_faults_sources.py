"""Whatever a manifest or the manifest URL says, pods that run go on (docs/behaviour/sources.md).

A whole agent on a simulated runtime in virtual time, with real files and a real web server.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import Ring, simulated
from tests.unit.sources.bad_input import POD, REFUSED, Refused
from tests.unit.sources.web_lab import Web, broken_off, endless, serving

from nodeagent.agent import NodeAgent
from nodeagent.config import AgentConfig
from nodeagent.embedded import Embedded
from nodeagent.testing import MemorySource

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent(
    runtime: Embedded, endpoint: str, tmp_path: Path, **settings: Any
) -> AsyncIterator[Ring]:
    config = AgentConfig(
        container_runtime_endpoint=endpoint,
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        node_name="n1",
        node_ip="10.0.0.1",
        **settings,
    )
    async with NodeAgent(config) as running:
        yield Ring(running, runtime, MemorySource())


@asynccontextmanager
async def on_files(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Ring, Path]]:
    manifests = tmp_path / "m"
    manifests.mkdir()
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        agent(runtime, endpoint, tmp_path, static_pod_path=manifests, **settings) as ring,
    ):
        yield ring, manifests


def manifests_check(ring: Ring) -> str:
    """What healthz says of manifests, "" when all is well."""
    ((_, found),) = ring.agent.parts.checks.one("manifests")
    return found.cause


class Unharmed:
    """Pods that must not notice anything."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._ids = ring.ids()
        self._made_and_ended = self._calls()

    def _calls(self) -> dict[str, int]:
        return {method: self._ring.runtime.core.calls.get(method, 0) for method in _CHANGING}

    async def still(self, seconds: float = 45.0) -> None:
        """They have run on all the time, and go on; nothing was made or ended beside them."""
        await anyio.sleep(seconds)
        assert self._ids
        assert self._ring.ids() == self._ids
        assert self._calls() == self._made_and_ended


_CHANGING = (
    "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox",
    "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer",
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
async def test_a_bad_manifest_harms_no_pod(tmp_path: Path, case: Refused) -> None:
    async with on_files(tmp_path) as (ring, manifests):
        (manifests / "web.yaml").write_text(POD)
        (manifests / "db.yaml").write_text(POD.replace("web", "db"))
        await ring.running("web-n1")
        await ring.running("db-n1")
        unharmed = Unharmed(ring)
        (manifests / "web.yaml").write_bytes(case.data)
        await ring.until(lambda: manifests_check(ring))
        # Without an API server two more kinds may lie there.
        told = case.lines[0].replace("expected Pod,", "expected Pod, ConfigMap, Secret,")
        assert manifests_check(ring) == f"web.yaml: {told}"
        await unharmed.still()
        (manifests / "web.yaml").write_text(POD)
        await ring.until(lambda: not manifests_check(ring))
        await unharmed.still()


def becomes_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def becomes_dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere.yaml")


def becomes_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def becomes_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def becomes_huge(path: Path) -> None:
    os.truncate(path, 10 * 1024 * 1024)


@pytest.mark.parametrize(
    "change",
    [becomes_fifo, becomes_dangling, becomes_device, becomes_loop, becomes_huge],
    ids=lambda change: change.__name__,
)
async def test_a_file_that_becomes_something_else_harms_no_pod(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    async with on_files(tmp_path) as (ring, manifests):
        (manifests / "web.yaml").write_text(POD)
        await ring.running("web-n1")
        unharmed = Unharmed(ring)
        change(manifests / "web.yaml")
        await ring.until(lambda: manifests_check(ring))
        await unharmed.still()


async def test_a_save_in_two_steps_restarts_nothing_that_has_not_changed(tmp_path: Path) -> None:
    async with on_files(tmp_path) as (ring, manifests):
        path = manifests / "web.yaml"
        path.write_text(POD)
        await ring.running("web-n1")
        unharmed = Unharmed(ring)
        for step in range(5):
            path.rename(manifests / "web.yaml~")
            await anyio.sleep(0.5)
            with path.open("w") as file:
                for line in [f"# save {step}\n", *POD.splitlines(keepends=True)]:
                    file.write(line)
                    file.flush()
                    await anyio.sleep(0.2)
            (manifests / "web.yaml~").unlink()
        await unharmed.still()
        before = ring.ids()
        path.write_text(POD.replace("busybox", "busybox:2"))
        await ring.until(lambda: ring.ids() not in ([], before))


async def test_manifests_that_are_gone_at_once_and_back_harm_no_pod(tmp_path: Path) -> None:
    async with on_files(tmp_path) as (ring, manifests):
        (manifests / "web.yaml").write_text(POD)
        await ring.running("web-n1")
        unharmed = Unharmed(ring)
        manifests.rename(tmp_path / "aside")
        await anyio.sleep(2)
        (tmp_path / "aside").rename(manifests)
        await unharmed.still()


def item(name: str, image: str = "busybox") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


def pod_list(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items})


@asynccontextmanager
async def on_url(tmp_path: Path, body: str) -> AsyncIterator[tuple[Ring, Web]]:
    async with serving() as site, simulated(tmp_path) as (runtime, endpoint):
        site.body = body
        headers = [("Authorization", "Bearer SECRET")]
        settings = {"static_pod_url": site.url, "static_pod_url_header": headers}
        async with agent(runtime, endpoint, tmp_path, **settings) as ring:
            yield ring, site


BAD_ANSWERS = {
    "404": "404 Not Found",
    "500": "500 Internal Server Error",
    "html": "an HTML or XML page instead of manifests",
    "stalled": "no complete answer within 10 s",
    "broken off": "the answer broke off",
    "oversized": "too large: at least",
    "status": 'kind: a "Status" cannot be run from a manifest',
    "another host": "401 Unauthorized",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_of_the_url_harms_no_pod(tmp_path: Path, name: str) -> None:
    async with serving() as other, on_url(tmp_path, pod_list(item("a"), item("b"))) as (ring, site):
        other.status = 401
        await ring.running("a-n1")
        await ring.running("b-n1")
        unharmed = Unharmed(ring)
        match name:
            case "404" | "500":
                site.status = int(name)
            case "html":
                site.body = "<!DOCTYPE html><title>Log in</title>"
            case "stalled":
                site.handler = site.stalled
            case "broken off":
                site.handler = broken_off
            case "oversized":
                site.handler = endless
            case "status":
                site.body = json.dumps({"kind": "Status", "apiVersion": "v1", "code": 500})
            case "another host":
                site.redirect(other.url)
        await ring.until(lambda: manifests_check(ring))
        assert BAD_ANSWERS[name] in manifests_check(ring)
        await unharmed.still()
        assert all("Authorization" not in request.headers for request in other.requests)
        assert all("Authorization" in request.headers for request in site.requests)
        site.status, site.handler, site.headers = 200, None, {}
        site.body = pod_list(item("b"), item("a"))
        await ring.until(lambda: not manifests_check(ring))
        await unharmed.still()


async def test_each_pod_of_the_url_is_judged_by_itself(tmp_path: Path) -> None:
    async with on_url(tmp_path, pod_list(item("a"), item("b"), item("c"))) as (ring, site):
        for name in "abc":
            await ring.running(f"{name}-n1")
        before = {name: ring.ids(f"{name}-n1") for name in "abc"}
        bad = item("b")
        bad["spec"]["containers"][0]["image"] = ["busybox"]
        site.body = pod_list(item("a", "busybox:2"), bad)
        await ring.until(lambda: ring.pod("c-n1") is None and not ring.ids("c-n1"))
        await ring.until(lambda: ring.ids("a-n1") not in ([], before["a"]))
        assert ring.ids("b-n1") == before["b"]
        assert "items[1].spec.containers[0].image: expected a string" in manifests_check(ring)


async def test_an_empty_answer_ends_the_pods_and_the_same_brings_them_back(tmp_path: Path) -> None:
    async with on_url(tmp_path, pod_list(item("a"))) as (ring, site):
        await ring.running("a-n1")
        site.body = ""
        await ring.until(lambda: not ring.ids())
        assert manifests_check(ring) == f"{site.url}: an empty answer: no pods"
        site.body = pod_list(item("a"))
        await ring.running("a-n1")


async def test_pods_of_the_url_survive_a_restart_while_it_does_not_answer(tmp_path: Path) -> None:
    async with serving() as site, simulated(tmp_path) as (runtime, endpoint):
        site.body = pod_list(item("a"), item("b"))
        async with agent(runtime, endpoint, tmp_path, static_pod_url=site.url) as ring:
            await ring.running("a-n1")
            await ring.running("b-n1")
            before = ring.ids()
        site.status = 503
        async with agent(runtime, endpoint, tmp_path, static_pod_url=site.url) as ring:
            await ring.agent.ready()
            unharmed = Unharmed(ring)
            await unharmed.still(90)
            assert ring.ids() == before
            # They are looked after, too.
            await ring.until(lambda: ring.pod("a-n1") is not None)
        site.status, site.body = 200, pod_list(item("a"))
        async with agent(runtime, endpoint, tmp_path, static_pod_url=site.url) as ring:
            await ring.until(lambda: not ring.ids("b-n1"))
            assert ring.ids("a-n1")
            assert set(ring.ids()) < set(before)


async def test_files_and_url_stand_side_by_side(tmp_path: Path) -> None:
    manifests = tmp_path / "m"
    manifests.mkdir()
    (manifests / "web.yaml").write_text(POD)
    async with serving() as site, simulated(tmp_path) as (runtime, endpoint):
        site.body = pod_list(item("a"))
        settings = {"static_pod_url": site.url, "static_pod_path": manifests}
        async with agent(runtime, endpoint, tmp_path, **settings) as ring:
            await ring.running("web-n1")
            await ring.running("a-n1")
            sources = {
                pod.metadata.name: pod.metadata.annotations["kubernetes.io/config.source"]
                for pod in ring.agent.pods()
            }
            assert sources == {"web-n1": "file", "a-n1": "http"}
            value = ring.agent.registry.get_sample_value
            for source in ("file", "http"):
                labels = {"source": source, "verdict": "good"}
                assert value("nodeagent_manifest_documents", labels) == 1


async def test_a_url_that_never_answered_keeps_the_agent_unready_and_removes_nothing(
    tmp_path: Path,
) -> None:
    async with serving() as site, simulated(tmp_path) as (runtime, endpoint):
        site.body = pod_list(item("a"))
        async with agent(runtime, endpoint, tmp_path, static_pod_url=site.url) as ring:
            await ring.running("a-n1")
            before = ring.ids()
        (tmp_path / "root" / "checkpoints" / "manifest-url.json").unlink()
        site.handler = site.silent
        async with agent(runtime, endpoint, tmp_path, static_pod_url=site.url) as ring:
            await anyio.sleep(100)
            assert ring.ids() == before
            assert not ring.agent.parts.sources_ready.all_ready()
            assert "no complete answer" in manifests_check(ring)
