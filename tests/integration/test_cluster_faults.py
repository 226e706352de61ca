"""An API server that lies, breaks off, refuses: no running pod is lost and the loop goes on.

docs/behaviour/api-source.md, docs/behaviour/cluster.md, docs/offline.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from clocks import AdjustableClock
from cluster_ring import NODE, ClusterRing, bound, cluster_ring, served_ring
from ring import phase

from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.kube import ApiError
from nodeagent.testing import ApiStore
from nodeagent.testing.api_faults import (
    cut_off,
    endless_body,
    endless_pages,
    event,
    hangs,
    html,
    lines,
    refuses,
    says,
    slow,
)
from nodeagent.testing.api_server import FakeApiServer, Fault

pytestmark = pytest.mark.anyio

FAULTS: dict[str, Fault] = {
    "401": refuses(401, "Unauthorized"),
    "403": refuses(403, "Forbidden"),
    "429": refuses(429, "TooManyRequests", 2.0),
    "500": refuses(500, "InternalError"),
    "503": refuses(503, "ServiceUnavailable"),
    "504": refuses(504, "Timeout"),
    "an HTML page": html(),
    "an HTML error": html(502),
    "truncated JSON": says(b'{"kind":"PodList","items":[{"metad'),
    "no JSON": says(b"\x00\xff\xfe"),
    "an empty body": says(b""),
    "another kind": says(b'{"kind":"Status","apiVersion":"v1","status":"Success"}'),
    "a list of nothing": says(b'{"kind":"PodList","apiVersion":"v1","items":null}'),
    "a cut": cut_off,
    "silence": hangs,
    "a body without end": endless_body,
    "pages without end": endless_pages,
    "a slow answer": slow(5.0),
}

MOST_REQUESTS = 250
"""A server in trouble is not pressed: so many in two minutes."""


async def goes_on(node: ClusterRing, server: FakeApiServer, ids: list[str]) -> None:
    """The pod still runs, and a new one and an end are noticed once the server is well."""
    assert node.ids("web") == ids
    assert phase(node.pod("web")) == "Running"
    server.end_faults()
    server.cut()
    node.store.create(bound("later"))
    await node.until(lambda: node.api_phase("later") == "Running", 180)
    assert node.ids("web") == ids
    node.store.delete("pods", "later", grace=1)
    await node.api_gone("later")


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_answers_everything_badly_costs_no_pod(
    tmp_path: Path, fault: str
) -> None:
    async with served_ring(tmp_path, bound("web")) as (node, server):
        await node.api_running("web")
        ids = node.ids("web")
        server.inject(FAULTS[fault], times=10_000)
        server.cut()
        before = len(node.store.requests)
        await anyio.sleep(120)
        assert len(node.store.requests) - before < MOST_REQUESTS
        await goes_on(node, server, ids)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_answers_badly_at_first_delays_only(tmp_path: Path, fault: str) -> None:
    async with served_ring(tmp_path, static=()) as (node, server):
        server.inject(FAULTS[fault], times=30)
        node.store.create(bound("web"))
        await node.until(lambda: node.api_phase("web") == "Running", 600)


WATCHES: dict[str, Fault] = {
    "ends at once": lines(),
    "breaks at once": lines(end="abort"),
    "goes silent": lines(end="hang"),
    "a broken line": lines(b'{"type":"MODIFIED","object":{"kind":"Po\n'),
    "half a line": lines(b'{"type":"MODIFIED","obj', end="abort"),
    "an unknown type": lines(event("RENAMED", {"kind": "Pod"})),
    "a string for an object": lines(event("MODIFIED", "pod")),
    "no object": lines(b'{"type":"DELETED"}\n'),
    "an object without a name": lines(event("DELETED", {"kind": "Pod", "metadata": {}})),
    "410 in the stream": lines(
        event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    ),
    "410": refuses(410, "Expired"),
    "500 in the stream": lines(event("ERROR", {"kind": "Status", "code": 500})),
    "429": refuses(429, "TooManyRequests", 3.0),
    "HTML in the stream": lines(b"<html><body>bad gateway</body></html>\n"),
}


@pytest.mark.parametrize("fault", WATCHES)
async def test_watches_that_lie_cost_no_pod(tmp_path: Path, fault: str) -> None:
    async with served_ring(tmp_path, bound("web")) as (node, server):
        await node.api_running("web")
        ids = node.ids("web")
        server.inject(WATCHES[fault], method="WATCH", times=10_000)
        server.cut()
        before = len(node.store.requests)
        await anyio.sleep(120)
        assert len(node.store.requests) - before < MOST_REQUESTS
        await goes_on(node, server, ids)


def shown_running(node: ClusterRing, name: str) -> bool:
    return node.api_phase(name) == "Running"


async def test_a_watch_that_ends_each_second_misses_nothing(tmp_path: Path) -> None:
    async with served_ring(tmp_path, bound("web")) as (node, server):
        await node.api_running("web")
        ids = node.ids("web")
        server.watch_seconds = 1.0
        server.cut()
        for number in range(5):
            name = f"more-{number}"
            node.store.create(bound(name))
            await node.until(partial(shown_running, node, name), 60)
            node.store.delete("pods", name, grace=1)
            await node.api_gone(name)
        assert node.ids("web") == ids


async def test_connections_that_go_half_open_are_noticed_within_a_minute(tmp_path: Path) -> None:
    async with served_ring(tmp_path, bound("web")) as (node, server):
        await node.api_running("web")
        server.go_half_open()
        began = anyio.current_time()
        node.store.create(bound("more"))
        await node.until(lambda: phase(node.pod("more")) == "Running", 120)
        assert anyio.current_time() - began < 65


@pytest.mark.parametrize("seconds", [90.0, 600.0])
async def test_a_black_hole(tmp_path: Path, seconds: float) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(20.0, 1)])})
    async with served_ring(tmp_path, bound("web"), backend=backend) as (node, server):
        await node.api_running("web")
        server.freeze()
        await anyio.sleep(seconds)
        assert phase(node.pod("web")) == "Running"
        assert node.status("web").restart_count == 1
        server.thaw()

        def restarts() -> int:
            (status,) = node.store.get("pods", "web")["status"]["containerStatuses"]
            return int(status["restartCount"])

        await node.until(lambda: restarts() == 1 and node.is_ready("web"), 60)


@pytest.mark.parametrize("in_stream", [True, False])
async def test_a_version_that_is_too_old_replaces_nothing(tmp_path: Path, in_stream: bool) -> None:
    store = ApiStore()
    store.expire_in_stream = in_stream
    async with cluster_ring(tmp_path, bound("web"), bound("gone"), store=store) as node:
        await node.api_running("web")
        await node.api_running("gone")
        ids = node.ids("web")
        node.line.cut()
        await anyio.sleep(10)
        store.delete("pods", "gone", grace=0)
        store.create(bound("new"))
        store.expire()
        node.line.heal()
        await node.api_running("new")
        await node.until(lambda: not node.ids("gone"))
        assert node.ids("web") == ids


@pytest.mark.parametrize(
    ("method", "path", "status", "named"),
    [
        ("*", "/pods$", 403, "pods"),
        ("*", "/pods$", 401, "pods"),
        ("PATCH", "/pods/web/status$", 403, "patch pods/status"),
        ("POST", "/events$", 403, "create events"),
        ("*", "/leases", 403, "leases"),
        ("PATCH", f"/nodes/{NODE}/status$", 403, "patch nodes/status"),
    ],
)
async def test_a_missing_permission_is_named(
    tmp_path: Path, method: str, path: str, status: int, named: str
) -> None:
    reason = "Forbidden" if status == 403 else "Unauthorized"
    error = ApiError(status, reason, "no")
    async with cluster_ring(tmp_path, bound("calm")) as node:
        await node.api_running("calm")
        ids = node.ids("calm")
        node.store.refuse(method, path, error, 100_000)
        node.store.end_watches()
        node.store.expire()
        node.store.create(bound("web"))
        if not path.startswith("/pods$"):
            await node.running("web")
        await node.until(lambda: named in node.health("apiserver"), 400)
        assert node.ids("calm") == ids
        node.store._refusals.clear()
        await node.until(lambda: node.api_phase("web") == "Running", 400)
        await node.until(lambda: node.health("apiserver") == "", 400)


async def test_one_pod_whose_status_is_refused_holds_up_no_other(tmp_path: Path) -> None:
    invalid = ApiError(422, "Invalid", 'Pod "bad" is invalid')
    async with cluster_ring(tmp_path) as node:
        node.store.refuse("PATCH", "/pods/bad/status$", invalid, 20)
        node.store.create(bound("bad"))
        node.store.create(bound("good"))
        await node.api_running("good")
        assert node.api_phase("bad") == "Pending"
        await node.until(lambda: node.api_phase("bad") == "Running", 3600)


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
async def test_a_clock_that_is_an_hour_off(tmp_path: Path, skew: float) -> None:
    theirs, ours = AdjustableClock(), AdjustableClock()
    ours.jump(skew)
    backend = SimulatedBackend({"main": Script(stop_after=5.0)})
    store = ApiStore(theirs)
    async with cluster_ring(
        tmp_path,
        bound("web", grace=20),
        bound("short", active_deadline_seconds=60),
        store=store,
        backend=backend,
        clock=ours,
    ) as node:
        await node.api_running("web")
        began = anyio.current_time()
        store.delete("pods", "web")
        await node.api_gone("web")
        assert 5 <= anyio.current_time() - began < 10
        assert node.api_phase("short") == "Running"
        await node.until(lambda: node.api_phase("short") == "Failed", 120)
        assert 50 <= anyio.current_time() < 90


async def test_an_unreadable_pod_harms_no_other(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")
        ids = node.ids("web")

        def break_it(pod: dict[str, Any]) -> None:
            pod["spec"]["containers"][0]["ports"] = "many"

        node.store.edit("pods", "web", break_it)
        node.store.create(bound("more"))
        await node.api_running("more")
        assert node.ids("web") == ids
        assert node.recorded("ObjectUnusable")
        node.store.delete("pods", "web", grace=1)
        await node.until(lambda: not node.ids("web"))


async def test_conflicts_are_settled(tmp_path: Path) -> None:
    conflict = ApiError(409, "Conflict", "the object has been modified")
    async with cluster_ring(tmp_path) as node:
        for method in ("PATCH", "PUT"):
            node.store.refuse(method, "", conflict, 5)
        node.store.create(bound("web"))
        await node.until(lambda: node.api_phase("web") == "Running", 120)


async def test_a_pod_that_cannot_be_read_is_named_by_a_health_check(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(bound("good"))
        await node.api_running("good")
        odd = {"metadata": {"name": "odd", "namespace": "default", "uid": "odd-1"}}
        odd |= {"spec": {"nodeName": NODE, "containers": "none"}}
        node.store.put("pods", ("default", "odd"), odd)
        await node.until(lambda: "pod default/odd of the API server" in node.health("manifests"))
        assert node.api_phase("good") == "Running"
        node.store.delete("pods", "odd", grace=0)
        await node.until(lambda: node.health("manifests") == "")
