"""A server that lies, stalls or breaks: no pod is lost, and the source catches up.

Over HTTP, with the agent's own client (docs/behaviour/api-source.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.unit.kube.kube_lab import kubeconfig
from tests.unit.sources.api_lab import NODE, ApiLab

from nodeagent.api.codec import to_builtins
from nodeagent.kube.connect import open_clients
from nodeagent.testing import ApiStore, make_pod
from nodeagent.testing import api_faults as faults
from nodeagent.testing.api_server import FakeApiServer, Fault, serving_api

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(
    tmp_path: Path, *pods: str, store: ApiStore | None = None, **options: Any
) -> AsyncIterator[tuple[ApiLab, FakeApiServer]]:
    """A source that has seen these pods of a server."""
    async with serving_api(store) as server:
        config = kubeconfig(tmp_path / "kubeconfig", server.url)
        async with open_clients(config) as clients:
            lab = ApiLab(server.store, clients.main, **options)
            for pod in pods:
                lab.add(pod)
            async with lab.running():
                await lab.names(*pods)
                yield lab, server


async def test_changes_come_over_http(tmp_path: Path) -> None:
    """WA2, WA24."""
    async with running(tmp_path, "a") as (lab, server):
        lab.add("b")
        await lab.names("a", "b")
        lab.store.delete("pods", "a", grace=0)
        await lab.names("b")
        assert lab.source.informer.reflector.watches == 1
        assert server.connections == 1


EVENT = faults.event("MODIFIED", to_builtins(make_pod("half", node_name=NODE)))

FAULTS: dict[str, Fault] = {
    "401": faults.refuses(401, "Unauthorized"),
    "403": faults.refuses(403, "Forbidden"),
    "404": faults.refuses(404, "NotFound"),
    "410": faults.refuses(410, "Expired"),
    "429": faults.refuses(429, "TooManyRequests", retry_after=2),
    "500": faults.refuses(500, "InternalError"),
    "503": faults.refuses(503),
    "504": faults.refuses(504, "Timeout"),
    "html": faults.html(),
    "html 502": faults.html(502),
    "nothing": faults.says(b""),
    "null": faults.says(b"null"),
    "an empty object": faults.says(b"{}"),
    "truncated json": faults.says(b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"it'),
    "a good list of another kind": faults.says(
        b'{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[]}'
    ),
    "cut off": faults.cut_off,
    "slow": faults.slow(7),
    "hangs": faults.hangs,
    "endless pages": faults.endless_pages,
    "endless body": faults.endless_body,
    "half a line": faults.lines(EVENT[:-40], end="abort"),
    "half a line, closed well": faults.lines(EVENT[:-40]),
    "half a line, then silence": faults.lines(EVENT[:40], end="hang"),
    "no events": faults.lines(),
    "lines that are none": faults.lines(b"\n", b"{}\n", b"null\n"),
    "an error event": faults.lines(
        faults.event("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError"})
    ),
    "an expired event": faults.lines(
        faults.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    ),
}


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_no_fault_loses_a_pod_or_stops_the_source(
    tmp_path: Path, fault: Fault, watch_list: bool
) -> None:
    async with running(tmp_path, "a", "b", watch_list=watch_list) as (lab, server):
        server.inject(fault, times=6)
        server.cut()
        await anyio.sleep(30)
        assert lab.shown() == ["a", "b"]
        assert len(lab.snapshots) == 1, "nothing was published meanwhile"
        lab.add("c")
        server.end_faults()
        await lab.names("a", "b", "c")
        assert {len(snapshot.pods) for snapshot in lab.snapshots} == {2, 3}
        await anyio.sleep(1)
        assert lab.source.trouble == ""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_fault_that_lasts_is_no_reason_to_press_the_server(
    tmp_path: Path, fault: Fault
) -> None:
    """WA13."""
    async with running(tmp_path, "a") as (lab, server):
        server.inject(fault, times=100_000)
        server.cut()
        await anyio.sleep(10)
        before = len(server.store.requests)
        await anyio.sleep(300)
        assert len(server.store.requests) - before < 300
        assert lab.shown() == ["a"]
        assert len(lab.snapshots) == 1


async def test_a_black_hole_is_left_within_a_minute(tmp_path: Path) -> None:
    """WA14."""
    async with running(tmp_path, "a") as (lab, server):
        server.freeze()
        lab.add("b")
        await anyio.sleep(60)
        assert lab.source.trouble
        assert lab.shown() == ["a"]
        server.thaw()
        await lab.names("a", "b")


async def test_a_half_open_connection_is_left_within_a_minute(tmp_path: Path) -> None:
    """WA14."""
    async with running(tmp_path, "a") as (lab, server):
        server.go_half_open()
        lab.add("b")
        began = anyio.current_time()
        await lab.names("a", "b")
        assert anyio.current_time() - began < 60


async def test_a_server_that_restarts_is_found_again(tmp_path: Path) -> None:
    async with running(tmp_path, "a") as (lab, server):
        await server.stop()
        await anyio.sleep(90)
        assert "cannot" in lab.source.trouble
        lab.add("b")
        await server.start()
        began = anyio.current_time()
        await lab.names("a", "b")
        assert anyio.current_time() - began <= 61


async def test_a_watch_that_ends_each_second_keeps_up(tmp_path: Path) -> None:
    """WA12."""
    async with running(tmp_path, "a") as (lab, server):
        server.watch_seconds = 1.0
        server.cut()
        for number in range(10):
            await anyio.sleep(3)
            lab.add(f"p{number}")
        await lab.until(lambda: len(lab.snapshots[-1].pods) == 11, 60)
        assert lab.source.informer.reflector.lists < 5


async def test_a_line_that_is_cut_is_read_whole_the_next_time(tmp_path: Path) -> None:
    """WA11."""
    async with running(tmp_path, "a") as (lab, server):
        server.inject(faults.lines(EVENT[:30], end="abort"), method="WATCH")
        lab.add("b")
        server.cut()
        await lab.names("a", "b")


async def test_odd_but_good_pods_come_through(tmp_path: Path) -> None:
    """WA17, WA22, WA23."""
    store = ApiStore()

    def newer(_plural: str, item: dict[str, Any]) -> None:
        item["spec"]["inventedLater"] = {"a": [{"b": None}]}
        item["spec"]["containers"][0]["inventedToo"] = 1
        item["status"]["inventedStatus"] = {}

    store.mutators.append(newer)
    async with running(tmp_path, "a", store=store) as (lab, server):
        lab.add("huge", annotations={"note": "x" * (2 << 20)})
        await lab.names("a", "huge")
        early = store.get("pods", "a")
        early["metadata"] |= {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2020-01-01T00:00:00Z",
        }
        store.put("pods", ("default", "a"), early)
        await lab.until(lambda: any(p.metadata.deletion_timestamp for p in lab.snapshots[-1].pods))
        old = {pod.metadata.uid for pod in lab.snapshots[-1].pods}
        store.delete("pods", "huge", grace=0)
        lab.add("huge")
        await lab.until(
            lambda: any(
                p.metadata.name == "huge" and p.metadata.uid not in old
                for p in lab.snapshots[-1].pods
            )
        )
        server.cut()
        lab.add("last", annotations={"note": "y" * (2 << 20)})
        await lab.names("a", "huge", "last")
        assert lab.source.problems() == {}
