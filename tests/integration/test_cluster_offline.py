"""The API server is away: what runs goes on, and what was missed is made up for.

docs/offline.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, Line, bound, cluster_ring, node_on, static_pod, writes
from ring import phase, simulated

from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.kube import ApiError
from nodeagent.testing import ApiStore

pytestmark = pytest.mark.anyio

OUTAGES = [90.0, 600.0]
STATIC = f"static-{NODE}"


def crash(node: ClusterRing, backend: SimulatedBackend, name: str, code: int = 9) -> None:
    """End the running container of a pod."""
    (record,) = node.containers(name, running=True)
    backend.end(record, code)


def restarts(node: ClusterRing, name: str) -> int:
    pod = node.api_pod(name) or {"status": {}}
    statuses = pod["status"].get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


@pytest.mark.parametrize("seconds", OUTAGES)
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "refusing"])
async def test_pods_run_on_and_what_happened_to_them_is_told_later(
    tmp_path: Path, seconds: float, silent: bool
) -> None:
    backend = SimulatedBackend({"main": Script()})
    async with cluster_ring(tmp_path, bound("calm"), bound("crashes"), backend=backend) as node:
        await node.api_running("calm")
        await node.api_running("crashes")
        (calm,) = node.ids("calm")
        (node.line.fall_silent if silent else node.line.cut)()
        await anyio.sleep(5)
        crash(node, backend, "crashes")
        await node.until(lambda: len(node.containers("crashes", running=True)) == 1)
        await anyio.sleep(seconds - 5)
        assert phase(node.pod("calm")) == "Running"
        assert restarts(node, "crashes") == 0
        assert "pods run on" in node.health("apiserver")
        node.line.heal()
        await node.until(lambda: restarts(node, "crashes") == 1, 60)
        assert node.ids("calm") == [calm]
        await node.until(lambda: node.health("apiserver") == "", 60)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "refusing"])
async def test_the_end_of_a_pod_is_told_later(tmp_path: Path, silent: bool) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(60.0, 3)])})
    async with cluster_ring(tmp_path, bound("job", restart="Never"), backend=backend) as node:
        await node.api_running("job")
        (node.line.fall_silent if silent else node.line.cut)()
        await node.until(lambda: phase(node.pod("job")) == "Failed")
        await anyio.sleep(300)
        assert node.api_phase("job") == "Running"
        node.line.heal()
        await node.until(lambda: node.api_phase("job") == "Failed", 60)
        (status,) = node.store.get("pods", "job")["status"]["containerStatuses"]
        assert status["state"]["terminated"]["exitCode"] == 3


async def test_only_an_explicit_deletion_stops_a_pod(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("kept"), bound("deleted", grace=3)) as node:
        await node.api_running("kept")
        await node.api_running("deleted")
        (kept,) = node.ids("kept")
        node.line.fall_silent()
        node.store.delete("pods", "deleted")
        node.store.expire()
        await anyio.sleep(120)
        assert node.ids("deleted"), "nobody could tell the node"
        node.line.heal()
        await node.api_gone("deleted")
        assert node.ids("kept") == [kept]


async def test_static_pods_are_managed_fully_meanwhile(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(STATIC)
        node.line.cut()
        node.source.set(static_pod(uid="uid-static-2"), static_pod("more", uid="uid-more"))
        await node.running(f"more-{NODE}")
        await node.until(
            lambda: (
                [p.metadata.uid for p in node.agent.pods() if p.metadata.name == STATIC]
                == ["uid-static-2"]
            )
        )
        await node.running(STATIC)
        node.source.set(static_pod("more", uid="uid-more"))
        await node.until(lambda: not node.ids(STATIC))
        node.line.heal()
        await node.api_running(f"more-{NODE}")
        await node.api_gone(STATIC)


async def test_an_agent_starts_without_the_api_server(tmp_path: Path) -> None:
    line = Line(ApiStore())
    line.store.create(bound("web"))
    line.cut()
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line, static_pod()) as node,
    ):
        await node.running(STATIC)
        await anyio.sleep(120)
        assert not node.store.all("nodes")
        assert "and never did" in node.health("apiserver")
        assert "not registered" in node.health("node")
        line.heal()
        await node.api_running("web")
        await node.api_running(STATIC)


async def test_an_agent_that_restarts_meanwhile_keeps_the_pods(tmp_path: Path) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    for name in ("calm", "crashes"):
        line.store.create(bound(name))
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line, static_pod()) as node:
            for name in ("calm", "crashes", STATIC):
                await node.api_running(name)
            await anyio.sleep(10)
            before = node.ids("calm") + node.ids(STATIC)
            line.cut()
            await anyio.sleep(30)
        crash(node, backend, "crashes")
        async with node_on(runtime, endpoint, tmp_path, line, static_pod()) as node:
            await node.running(STATIC)
            await node.running("calm")
            (why,) = node.recorded("CheckpointUsed")
            assert "connection refused" in why
            await node.until(lambda: len(node.containers("crashes", running=True)) == 1)
            await anyio.sleep(60)
            assert node.ids("calm") + node.ids(STATIC) == before
            assert not node.agent.parts.sources_ready.all_ready()
            line.heal()
            await node.until(lambda: restarts(node, "crashes") == 1)
            await node.until(node.agent.parts.sources_ready.all_ready)
            await anyio.sleep(60)
            assert node.ids("calm") + node.ids(STATIC) == before


async def test_a_machine_that_restarts_meanwhile_starts_the_pods_again(tmp_path: Path) -> None:
    line = Line(ApiStore())
    line.store.create(bound("web"))
    line.store.create(bound("done", restart="Never"))
    scripts = {"main": Script(exits=[(5.0, 0)])}
    async with (
        simulated(tmp_path, SimulatedBackend(scripts)) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line, static_pod()) as node,
    ):
        await node.until(lambda: node.api_phase("done") == "Succeeded")
        await node.until(lambda: restarts(node, "web") == 1 and node.is_ready("web"))
        await anyio.sleep(10)
        line.cut()
    other = tmp_path / "after"
    other.mkdir()
    # All that the runtime had is gone, as after a loss of power.
    async with (
        simulated(other) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line, static_pod()) as node,
    ):
        await node.until(lambda: bool(node.ids("web")))
        await anyio.sleep(120)
        assert node.ids("done") == [], "what has ended does not run again"
        ids = node.ids("web")
        line.heal()
        await node.until(node.agent.parts.sources_ready.all_ready)
        await node.until(lambda: node.is_ready("web"))
        await anyio.sleep(60)
        assert node.ids("web") == ids
        assert node.api_phase("done") == "Succeeded"


async def test_what_a_pod_was_let_in_for_need_not_be_known_again(tmp_path: Path) -> None:
    """The node's labels are the cluster's, and a runtime class is an object there."""
    line = Line(ApiStore())
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": ""}
    line.store.create({**kind, "metadata": {"name": "usual"}})
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.until(lambda: bool(line.store.all("nodes")))

        def give_label(item: dict[str, Any]) -> None:
            item["metadata"]["labels"]["example.com/disk"] = "ssd"

        line.store.edit("nodes", NODE, give_label, namespace="")
        await anyio.sleep(10)
        selector = {"example.com/disk": "ssd"}
        line.store.create(bound("web", node_selector=selector, runtime_class_name="usual"))
        await node.api_running("web")
        await anyio.sleep(10)
        line.cut()
    other = tmp_path / "after"
    other.mkdir()
    async with (
        simulated(other) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.until(lambda: bool(node.ids("web")))
        ids = node.ids("web")
        line.heal()
        await node.until(node.agent.parts.sources_ready.all_ready)
        await anyio.sleep(60)
        assert node.ids("web") == ids
        assert node.api_phase("web") == "Running"


@pytest.mark.parametrize(
    "error",
    [ApiError(503, "", "no healthy upstream"), ApiError(500, "InternalError", "etcd is away")],
    ids=["gateway", "no etcd"],
)
async def test_a_machine_restarts_while_only_errors_are_answered(
    tmp_path: Path, error: ApiError
) -> None:
    line = Line(ApiStore())
    line.store.create(bound("web"))
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.api_running("web")
        await anyio.sleep(10)
    other = tmp_path / "after"
    other.mkdir()
    line.store.refuse("*", "", error, 100_000)
    async with (
        simulated(other) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.until(lambda: bool(node.ids("web")))
        ids = node.ids("web")
        line.store._refusals.clear()
        await node.until(lambda: node.is_ready("web"))
        assert node.ids("web") == ids


async def test_an_old_checkpoint_starts_nothing_that_the_server_has_removed(
    tmp_path: Path,
) -> None:
    line = Line(ApiStore())
    for name in ("stays", "removed"):
        line.store.create(bound(name))
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.api_running("stays")
        await node.api_running("removed")
        await anyio.sleep(10)
    line.store.delete("pods", "removed", grace=0)
    other = tmp_path / "after"
    other.mkdir()
    line.fall_silent()
    async with (
        simulated(other) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await anyio.sleep(12)
        assert node.agent.pods() == [], "the server has some time to answer"
        line.heal()
        await node.running("stays")
        await anyio.sleep(60)
        assert node.pod("removed") is None
        assert node.recorded("CheckpointUsed") == []
        assert not [c for c in node.containers() if "removed" in str(c.config.labels)]


async def test_pods_that_nobody_knows_are_left_alone_until_the_server_has_spoken(
    tmp_path: Path,
) -> None:
    line = Line(ApiStore())
    line.store.create(bound("web"))
    async with simulated(tmp_path) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await node.api_running("web")
            ids = node.ids("web")
            await anyio.sleep(10)
        for saved in (tmp_path / "root" / "checkpoints").glob("api-pods*"):
            saved.unlink()
        line.cut()
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await anyio.sleep(300)
            assert node.pod("web") is None
            assert node.ids("web") == ids
            line.heal()
            await node.api_running("web")
            await anyio.sleep(30)
            assert node.ids("web") == ids


async def test_what_was_missed_is_told_once_and_in_order(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script()})
    async with cluster_ring(tmp_path, bound("web"), backend=backend) as node:
        await node.api_running("web")
        node.line.cut()
        for _ in range(3):
            crash(node, backend, "web")
            await anyio.sleep(1)
            await node.until(lambda: bool(node.ids("web")), 400)
            await anyio.sleep(15)
        node.line.heal()
        before = len(node.store.requests)
        await node.until(lambda: restarts(node, "web") == 3)
        await anyio.sleep(30)
        made = writes(node.store.requests[before:])
        assert made["PATCH pods/status"] <= 2, made


async def test_an_agent_that_ends_says_what_it_knows_first(tmp_path: Path) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script(exits=[(30.0, 0)])})
    line.store.create(bound("job", restart="Never"))
    async with (
        simulated(tmp_path, backend) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line) as node,
    ):
        await node.api_running("job")
        await node.until(lambda: bool(node.recorded("PodTerminated")))
    assert line.store.get("pods", "job")["status"]["phase"] == "Succeeded"


async def test_an_agent_that_ends_while_the_server_is_away_waits_for_nobody(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")
        node.line.cut()
        await anyio.sleep(30)
        ended = anyio.current_time()
    assert anyio.current_time() - ended < 4


async def test_two_agents_are_two_nodes(tmp_path: Path) -> None:
    line, both = Line(ApiStore()), []
    homes = [tmp_path / "a", tmp_path / "b"]

    def is_ready(name: str) -> bool:
        found: list[dict[str, Any]] = line.store.all("nodes")
        return any(
            c["type"] == "Ready" and c["status"] == "True"
            for n in found
            if n["metadata"]["name"] == name
            for c in n["status"].get("conditions", ())
        )

    for home in homes:
        home.mkdir()
    async with (
        simulated(homes[0]) as (one, at_one),
        simulated(homes[1]) as (two, at_two),
        node_on(one, at_one, homes[0], line) as first,
        node_on(two, at_two, homes[1], line, name="node2") as second,
    ):
        both = [first, second]
        await first.until(lambda: is_ready(NODE) and is_ready("node2"))
        line.store.create(bound("web"))
        line.store.create(bound("other", node="node2"))
        await first.api_running("web")
        await second.api_running("other")
        assert [len(node.runtime.core.state.sandboxes) for node in both] == [1, 1]
        assert len(line.store.all("leases")) == 2
